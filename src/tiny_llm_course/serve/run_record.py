"""Records an engine's steps in a file that `tiny-llm viz schedule` draws."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from .engine_protocols import Batch, Engine, Request
from .run_file import RunAbort, RunChunk, RunFile, RunPages, RunRequest, RunStep

__all__ = ["RunRecorder"]


class RunRecorder:
    """An observer of an engine (a `serving.engine.Observer`) that records each step.

    about: the fields of `RunFile` for the command's options. backlog: a function that returns the number of waiting
    requests that are not in the engine yet. Times are in seconds since the recorder was created.
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        backlog: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = perf_counter,
    ):
        self._about, self._backlog, self._clock = about, backlog, clock
        self._start = clock()
        self._pages: RunPages | None = None
        self._requests: dict[str, RunRequest] = {}
        self._generated: dict[str, int] = {}  # request id -> number of tokens generated so far
        self._steps: list[RunStep] = []
        self._aborted: list[RunAbort] = []

    def on_step(self, engine: Engine, batch: Batch, touched: Sequence[Request]) -> None:
        for chunk in batch.chunks:
            self._requests.setdefault(chunk.request.id, RunRequest(prompt=len(chunk.request.prompt)))
        step = RunStep(
            time=self._now(),
            chunks=[
                RunChunk(id=c.request.id, start=c.start, length=len(c.tokens), scored=c.num_logits)
                for c in batch.chunks
            ],
            generated=self._new_tokens(touched),
            preempted=list(batch.preempted),
            finished={r.id: r.finish_reason for r in touched if r.finish_reason is not None},
            running=len(engine.scheduler.running),
            waiting=len(engine.scheduler.waiting) + self._backlog(),
        )
        if (pool := getattr(engine.scheduler.cache, "pool", None)) is not None:
            self._pages = RunPages(count=pool.num_pages, size=pool.page_size)
            step.pages_used = len({page for request in engine.scheduler.running for page in request.pages})
            step.pages_kept = pool.num_pages - pool.num_free - step.pages_used
        self._steps.append(step)

    def on_abort(self, engine: Engine, request: Request) -> None:
        self._aborted.append(RunAbort(id=request.id, time=self._now(), step=len(self._steps)))

    def _new_tokens(self, touched: Sequence[Request]) -> int:
        """Return the number of tokens that a step generated. Counting the tokens of chunks would not give this number,
        because an output's last token is in no chunk, and wrong guesses are in some chunks."""
        before = sum(self._generated.get(request.id, 0) for request in touched)
        self._generated |= {request.id: len(request.output) for request in touched}
        return sum(self._generated[request.id] for request in touched) - before

    def run(self) -> RunFile:
        """Return the run so far."""
        parts: dict[str, Any] = {
            "pages": self._pages,
            "requests": self._requests,
            "steps": self._steps,
            "aborted": self._aborted,
        }
        return RunFile.model_construct(**self._about, **parts)

    def write(self, path: Path) -> None:
        """Write the file atomically: an older file of this name is replaced once the new one is complete."""
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            new.write_text(self.run().model_dump_json(exclude_none=True) + "\n", encoding="utf-8")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)

    def _now(self) -> float:
        return round(self._clock() - self._start, 6)
