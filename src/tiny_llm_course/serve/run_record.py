"""Records what an engine did, step by step, in a file that `tiny-llm viz schedule` draws."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from .engine_protocols import Batch, Engine, Request

__all__ = ["FORMAT", "VERSION", "RunRecorder"]

FORMAT = "tiny-llm run"
VERSION = 2


class RunRecorder:
    """An observer of an engine (of `serving.engine.Observer`) that notes each step.

    about: what else stands in the file; see `viz/schedule_run.py`. backlog: how many requests wait that the engine does
    not know of yet. Times are seconds since it was made.
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        backlog: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = perf_counter,
    ):
        self._about, self._backlog, self._clock = about, backlog, clock
        self._start = clock()
        self._pages: dict[str, int] | None = None
        self._requests: dict[str, dict[str, int]] = {}
        self._generated: dict[str, int] = {}  # of each request, how many tokens until now
        self._steps: list[dict[str, Any]] = []
        self._aborted: list[dict[str, Any]] = []

    def on_step(self, engine: Engine, batch: Batch, touched: Sequence[Request]) -> None:
        for chunk in batch.chunks:
            self._requests.setdefault(chunk.request.id, {"prompt": len(chunk.request.prompt)})
        chunks = [
            {"id": c.request.id, "start": c.start, "length": len(c.tokens), "scored": c.num_logits}
            for c in batch.chunks
        ]
        step = {
            "time": self._now(),
            "chunks": chunks,
            "generated": self._new_tokens(touched),
            "preempted": list(batch.preempted),
            "finished": {r.id: r.finish_reason for r in touched if r.finish_reason is not None},
            "running": len(engine.scheduler.running),
            "waiting": len(engine.scheduler.waiting) + self._backlog(),
        }
        if (pool := getattr(engine.scheduler.cache, "pool", None)) is not None:
            self._pages = {"count": pool.num_pages, "size": pool.page_size}
            used = len({page for request in engine.scheduler.running for page in request.pages})
            step |= {"pages_used": used, "pages_kept": pool.num_pages - pool.num_free - used}
        self._steps.append(step)

    def on_abort(self, engine: Engine, request: Request) -> None:
        self._aborted.append({"id": request.id, "time": self._now(), "step": len(self._steps)})

    def _new_tokens(self, touched: Sequence[Request]) -> int:
        """Count the tokens that a step generated. Chunks do not tell: an output's last token and wrong guesses
        differ."""
        before = sum(self._generated.get(request.id, 0) for request in touched)
        self._generated |= {request.id: len(request.output) for request in touched}
        return sum(self._generated[request.id] for request in touched) - before

    def data(self) -> dict[str, Any]:
        """Return what the file holds so far."""
        return {
            "format": FORMAT,
            "version": VERSION,
            **self._about,
            "pages": self._pages,
            "requests": self._requests,
            "steps": self._steps,
            "aborted": self._aborted,
        }

    def write(self, path: Path) -> None:
        """Write the whole file or nothing: a file of that name is replaced when the new one is complete."""
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            new.write_text(json.dumps(self.data(), ensure_ascii=False) + "\n", encoding="utf-8")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)

    def _now(self) -> float:
        return round(self._clock() - self._start, 6)
