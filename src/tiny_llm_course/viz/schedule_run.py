"""A recorded run of an engine: read from the file that `tiny-llm batch --record` wrote, and laid out in lanes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..serve.run_record import FORMAT, VERSION
from ..ui import CommandError, Messages, Phrase, phrase

__all__ = ["KINDS", "RecordedRun", "RecordedStep", "RequestEvent", "Span", "Work", "read_run"]

KINDS = ("prefill", "decode", "again")  # of work; "again" computes once more what a preemption lost
SHOWN = 40  # characters that are shown of a wrong value


@dataclass(frozen=True)
class Work:
    """The `length` positions of a request, from `start` on, that a step computed."""

    id: str
    start: int
    length: int
    scored: int
    kind: str
    lane: int


@dataclass(frozen=True)
class RequestEvent:
    """An event of a request, which was preempted, finished or aborted.

    lane: None if the request was not running. why: the reason for which it finished.
    """

    id: str
    lane: int | None
    why: str = ""


@dataclass(frozen=True)
class RecordedStep:
    """A step of a recorded run.

    time: the time at its end, in seconds. generated: the number of tokens that were added to outputs. aborted: requests
    that were aborted before the step. preempted: requests that were preempted before it computed anything. finished:
    requests that had finished at its end.
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
    """The stay of a request in a lane: from the step `first` on, and no longer in the step `last`."""

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
        CommandError: the file is not such a run, or has another version, or has a wrong value, which the error locates.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CommandError("viz_schedule_no_run", file=file)
    if data.get("version") != VERSION:
        raise CommandError("viz_schedule_version", file=file, version=_shown(data.get("version")), known=VERSION)
    try:
        _check(data)
    except _RunError as problem:
        where, expected, got = problem.args
        raise CommandError("viz_schedule_wrong", file=file, where=where, expected=expected, got=got) from None
    return _Layout(data).run()


class _RunError(Exception):
    """An error in a recorded run: the place, the expected value, and the value that is there."""


def _text(value: object) -> bool:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53  # exact in JavaScript


def _seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


_KINDS: dict[str, tuple[Phrase, Callable[[Any], bool]]] = {  # a name for what is expected, and a check
    "text": (phrase("viz_schedule_text"), _text),
    "whole": (phrase("expects_whole", least=0), _whole),
    "positive": (phrase("expects_whole", least=1), lambda value: _whole(value) and value > 0),
    "seconds": (phrase("viz_schedule_seconds"), _seconds),
    "list": (phrase("viz_schedule_list"), lambda value: isinstance(value, list)),
    "object": (phrase("viz_schedule_object"), lambda value: isinstance(value, dict)),
    "some": (phrase("viz_schedule_some"), lambda value: isinstance(value, list) and value != []),
}


def _expect(expects: str, value: object, where: str) -> None:
    expected, holds = _KINDS[expects]
    if not holds(value):
        raise _RunError(where, expected, _shown(value))


def _get(entry: Any, name: str, where: str, expects: str) -> Any:
    """Return a value of an object, after a check that it is of the expected kind."""
    value = entry.get(name) if isinstance(entry, dict) else None
    _expect(expects, value, f"{where}.{name}".lstrip("."))
    return value


def _items(entry: Any, name: str, where: str, expects: str = "list") -> Iterator[tuple[str, Any]]:
    """Yield the elements of a list, each after its name for error messages."""
    for number, item in enumerate(_get(entry, name, where, expects)):
        yield f"{where}.{name}[{number}]".lstrip("."), item


def _check(data: dict[str, Any]) -> None:
    _get(data, "model", "", "text"), _get(data, "cache", "", "text")
    if data.get("pages") is not None:
        _get(data["pages"], "count", "pages", "positive"), _get(data["pages"], "size", "pages", "positive")
    requests = _get(data, "requests", "", "object")
    for id, request in requests.items():
        _get(request, "prompt", f"requests[{_shown(id)}]", "whole")
    before = 0.0
    for where, step in _items(data, "steps", "", "some"):
        if _get(step, "time", where, "seconds") < before:
            raise _RunError(f"{where}.time", phrase("viz_schedule_later"), _shown(step["time"]))
        before = step["time"]
        _check_step(where, step, requests, data.get("pages") is not None)
    for where, aborted in _items(data, "aborted", ""):
        _get(aborted, "id", where, "text"), _get(aborted, "step", where, "whole")


def _check_step(where: str, step: Any, requests: dict[str, Any], has_pages: bool) -> None:
    for name in ("generated", "running", "waiting", *(("pages_used", "pages_kept") if has_pages else ())):
        _get(step, name, where, "whole")
    seen: set[str] = set()
    for place, chunk in _items(step, "chunks", where):
        if _get(chunk, "id", place, "text") not in requests or chunk["id"] in seen:
            raise _RunError(f"{place}.id", phrase("viz_schedule_known"), _shown(chunk["id"]))
        seen.add(chunk["id"])
        _get(chunk, "start", place, "whole"), _get(chunk, "length", place, "positive")
        _get(chunk, "scored", place, "whole")
    for place, id in _items(step, "preempted", where):
        _expect("text", id, place)
    for id, why in _get(step, "finished", where, "object").items():
        _expect("text", why, f"{where}.finished[{_shown(id)}]")


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


class _Layout:
    """A layout that gives each request the lowest free lane while it runs."""

    def __init__(self, data: dict[str, Any]):
        self._data = data
        self._lanes: dict[str, tuple[int, int]] = {}  # of running requests: the lane, and the step that put them there
        self._reached: dict[str, int] = {}  # how many positions were computed
        self._lost: dict[str, int] = {}  # how many of these a preemption lost
        self._spans: list[Span] = []
        self._most = 0

    def run(self) -> RecordedRun:
        data = self._data
        steps = [self._step(number, step) for number, step in enumerate(data["steps"])]
        late = self._aborted(len(steps), is_last=True)
        for id in list(self._lanes):
            self._leave(id, len(steps))
        about = {name: data.get(name) for name in ("model", "cache", "max_running", "token_budget")}
        prompts = {id: request["prompt"] for id, request in data["requests"].items()}
        pages = data["pages"]["count"] if data.get("pages") else None
        return RecordedRun(about, pages, prompts, steps, self._spans, late, self._most)

    def _step(self, number: int, step: dict[str, Any]) -> RecordedStep:
        aborted = self._aborted(number)
        preempted = [RequestEvent(id, self._leave(id, number)) for id in step["preempted"]]
        for place in preempted:
            self._lost[place.id] = self._reached.get(place.id, 0)
        work = [self._work(number, chunk) for chunk in step["chunks"]]
        finished = [RequestEvent(id, self._leave(id, number + 1), why) for id, why in step["finished"].items()]
        pages = step.get("pages_used") if self._data.get("pages") else None
        return RecordedStep(
            step["time"],
            work,
            step["generated"],
            preempted,
            finished,
            aborted,
            step["running"],
            step["waiting"],
            pages,
            step.get("pages_kept", 0),
        )

    def _work(self, number: int, chunk: dict[str, Any]) -> Work:
        id, start, length = chunk["id"], chunk["start"], chunk["length"]
        if id not in self._lanes:
            taken = {lane for lane, _ in self._lanes.values()}
            lane = next(lane for lane in range(len(taken) + 1) if lane not in taken)
            self._lanes[id] = lane, number
            self._most = max(self._most, lane + 1)
        is_again = start < self._lost.get(id, 0)
        kind = "again" if is_again else "prefill" if start < self._data["requests"][id]["prompt"] else "decode"
        self._reached[id] = max(self._reached.get(id, 0), start + length)
        return Work(id, start, length, chunk["scored"], kind, self._lanes[id][0])

    def _aborted(self, number: int, is_last: bool = False) -> list[RequestEvent]:
        ids = [a["id"] for a in self._data["aborted"] if a["step"] == number or (is_last and a["step"] > number)]
        return [RequestEvent(id, self._leave(id, number), "abort") for id in ids]

    def _leave(self, id: str, number: int) -> int | None:
        """Free the lane that a request had until this step, and return it, or None if the request was not running."""
        if id not in self._lanes:
            return None
        lane, first = self._lanes.pop(id)
        self._spans.append(Span(id, lane, first, number))
        return lane
