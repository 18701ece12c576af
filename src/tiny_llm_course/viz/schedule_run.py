"""A recorded run of an engine: read from the file that `tiny-llm batch --record` wrote, and laid out in lanes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..model.expectations import WrongValue, first_wrong, shown
from ..serve.run_file import FORMAT, VERSION, RunChunk, RunFile, RunStep
from ..ui import CommandError, Messages, phrase

__all__ = ["KINDS", "RecordedRun", "RecordedStep", "RequestEvent", "Span", "Work", "read_run"]

KINDS = ("prefill", "decode", "again")  # kinds of work; "again" recomputes positions that a preemption lost
_KNOWN = {"steps": phrase("viz_schedule_some")}


@dataclass(frozen=True)
class Work:
    """The `length` positions of a request, from `start` onwards, that a step computed."""

    id: str
    start: int
    length: int
    scored: int
    kind: str
    lane: int


@dataclass(frozen=True)
class RequestEvent:
    """An event: a request was preempted, finished or aborted.

    lane: the request's lane, or None if the request was not running. why: the reason why the request finished.
    """

    id: str
    lane: int | None
    why: str = ""


@dataclass(frozen=True)
class RecordedStep:
    """A step of a recorded run.

    time: the time at the step's end, in seconds. generated: the number of tokens that were added to outputs. aborted:
    requests aborted before the step. preempted: requests preempted before the step computed anything. finished:
    requests that had finished when the step ended.
    """

    time: float
    work: list[Work]
    generated: int
    preempted: list[RequestEvent]
    finished: list[RequestEvent]
    aborted: list[RequestEvent]
    running: int
    waiting: int
    pages_used: int | None
    pages_kept: int


@dataclass(frozen=True)
class Span:
    """The stay of a request in a lane, from the step `first` up to but not including the step `last`."""

    id: str
    lane: int
    first: int
    last: int


@dataclass(frozen=True)
class RecordedRun:
    """The steps and requests of a recorded run.

    pages: the number of pages in the pool, or None if the cache has no pages. prompts: the number of tokens in each
    request's prompt. lanes: the largest number of requests that ran at the same time. late: requests that were aborted
    after the last step.
    """

    about: dict[str, Any]
    pages: int | None
    prompts: dict[str, int]
    steps: list[RecordedStep]
    spans: list[Span]
    late: list[RequestEvent]
    lanes: int

    def title(self, words: Messages) -> str:
        return words("viz_schedule_title", model=self.about["model"], cache=self.about["cache"])


def read_run(file: Path) -> RecordedRun:
    """Read a recorded run from a file.

    Raises:
        CommandError: the file is not a recorded run, has another version, or has a wrong value. The error says where
        the value is.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CommandError("viz_schedule_no_run", file=file)
    if data.get("version") != VERSION:
        raise CommandError("viz_schedule_version", file=file, version=shown(data.get("version")), known=VERSION)
    try:
        run = RunFile.model_validate(data)
        wrong = next(_wrong(run), None)
    except ValidationError as error:
        wrong = first_wrong(RunFile, error, _KNOWN)
    if wrong is not None:
        got = shown(wrong.got)
        raise CommandError("viz_schedule_wrong", file=file, where=wrong.place, expected=wrong.expected, got=got)
    return _Layout(run).run()


def _wrong(run: RunFile) -> Iterator[WrongValue]:
    """Yield each value that contradicts another value of the run."""
    before = 0.0
    for number, step in enumerate(run.steps):
        where, before, last = f"steps[{number}]", step.time, before
        if step.time < last:
            yield WrongValue(f"{where}.time", phrase("viz_schedule_later"), step.time)
        seen: set[str] = set()
        for place, chunk in enumerate(step.chunks):
            if chunk.id not in run.requests or chunk.id in seen:
                yield WrongValue(f"{where}.chunks[{place}].id", phrase("viz_schedule_known"), chunk.id)
            seen.add(chunk.id)
        for name in ("pages_used", "pages_kept") if run.pages else ():
            if getattr(step, name) is None:
                yield WrongValue(f"{where}.{name}", phrase("expects_whole", least=0), None)


class _Layout:
    """A layout that gives each request the lowest free lane while it runs."""

    def __init__(self, run: RunFile):
        self._run = run
        self._lanes: dict[str, tuple[int, int]] = {}  # each running request's lane, and its first step in the lane
        self._reached: dict[str, int] = {}  # the number of computed positions, keyed by request
        self._lost: dict[str, int] = {}  # the number of positions lost to a preemption, keyed by request
        self._spans: list[Span] = []
        self._most = 0

    def run(self) -> RecordedRun:
        run = self._run
        steps = [self._step(number, step) for number, step in enumerate(run.steps)]
        late = self._aborted(len(steps), is_last=True)
        for id in list(self._lanes):
            self._leave(id, len(steps))
        about = run.model_dump(include={"model", "cache", "max_running", "token_budget"})
        prompts = {id: request.prompt for id, request in run.requests.items()}
        pages = run.pages.count if run.pages else None
        return RecordedRun(about, pages, prompts, steps, self._spans, late, self._most)

    def _step(self, number: int, step: RunStep) -> RecordedStep:
        aborted = self._aborted(number)
        preempted = [RequestEvent(id, self._leave(id, number)) for id in step.preempted]
        for place in preempted:
            self._lost[place.id] = self._reached.get(place.id, 0)
        return RecordedStep(
            step.time,
            [self._work(number, chunk) for chunk in step.chunks],
            step.generated,
            preempted,
            [RequestEvent(id, self._leave(id, number + 1), why) for id, why in step.finished.items()],
            aborted,
            step.running,
            step.waiting,
            step.pages_used if self._run.pages else None,
            step.pages_kept or 0,
        )

    def _work(self, number: int, chunk: RunChunk) -> Work:
        id, start, length = chunk.id, chunk.start, chunk.length
        if id not in self._lanes:
            taken = {lane for lane, _ in self._lanes.values()}
            lane = next(lane for lane in range(len(taken) + 1) if lane not in taken)
            self._lanes[id] = lane, number
            self._most = max(self._most, lane + 1)
        is_again = start < self._lost.get(id, 0)
        kind = "again" if is_again else "prefill" if start < self._run.requests[id].prompt else "decode"
        self._reached[id] = max(self._reached.get(id, 0), start + length)
        return Work(id, start, length, chunk.scored, kind, self._lanes[id][0])

    def _aborted(self, number: int, is_last: bool = False) -> list[RequestEvent]:
        ids = [each.id for each in self._run.aborted if each.step == number or (is_last and each.step > number)]
        return [RequestEvent(id, self._leave(id, number), "abort") for id in ids]

    def _leave(self, id: str, number: int) -> int | None:
        """Free the lane that a request had until this step. Return the lane, or None if the request was not running."""
        if id not in self._lanes:
            return None
        lane, first = self._lanes.pop(id)
        self._spans.append(Span(id, lane, first, number))
        return lane
