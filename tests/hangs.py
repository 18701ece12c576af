"""Diagnosis of a scene that hangs: which coroutine or thread of the code under test waits, and at which line."""

from __future__ import annotations

import asyncio
import inspect
import linecache
import re
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["HangError", "Turns", "Watch", "blocked_loop", "hang"]

NO_UPDATE = "nothing put an update into the queue"
REASONS = {  # keyed by the module and the name of the innermost function that waits
    ("scenes", "get"): "nothing put a job into the queue",
    ("scenes", "receive"): "the client sends nothing more",
    ("scenes", "send"): "the client does not take the message",
    ("scenes", "events_of"): "no event comes",
    ("asyncio.queues", "get"): NO_UPDATE,
    ("asyncio.locks", "wait"): "nothing set the event",
    ("asyncio.tasks", "_wait"): "no task that it waits for has ended",
}
GIVEN = {  # keyed by the method of AsyncEngine that waits
    "call": "the engine's thread has not done the job",
    "stop": "the engine's thread has not ended",
}


class HangError(AssertionError):
    """The error of a scene that did not end. general: the part of the message without lines and times."""

    def __init__(self, message: str, general: str):
        super().__init__(message)
        self.general = general


class Turns:
    """Counts of what a thread was given and has taken. They tell other threads whether this thread waits in vain."""

    def __init__(self) -> None:
        self._given: list[None] = []  # a list, because any thread can append to a list without a lock
        self._taken = 0
        self._waits = False

    def give(self, count: int = 1) -> None:
        """Count `count` things that the thread can take. Call this method before these things are available."""
        self._given.extend([None] * count)

    @contextmanager
    def taking(self, waits: bool = True) -> Iterator[None]:
        """Count one thing that the block takes. waits: whether the block waits until there is something to take."""
        self._waits = waits
        try:
            yield
        except BaseException:  # nothing was taken
            self._waits = False
            raise
        self._waits = False  # first, so that the thread never seems to wait in vain
        self._taken += 1

    @property
    def counts(self) -> tuple[int, int]:
        return len(self._given), self._taken

    @property
    def is_short(self) -> bool:
        """Tell whether the thread waits although it has taken everything that it was given."""
        return self._waits and len(self._given) == self._taken


class Watch:
    """A watch over a scene. Without a clock, it notices that the scene cannot go on because both the scene's loop and
    the engine's thread wait."""

    def __init__(self) -> None:
        self._earlier = threading.enumerate()
        self._followed: dict[threading.Thread, tuple[Turns, ...]] = {}
        self._stuck: asyncio.Future[str] | None = None

    def begin(self, stuck: asyncio.Future[str]) -> None:
        """Begin to watch the scene. stuck: a future whose result is set when the scene cannot end."""
        self._stuck = stuck

    def follow(self, thread: threading.Thread, *turns: Turns) -> None:
        """Declare that a thread waits for nothing but the things that these turns count."""
        self._followed[thread] = turns

    def look(self, thread: threading.Thread) -> None:
        """Check whether the scene whose loop runs in this thread is stuck. If it is, give the scene up."""
        stuck = self._stuck
        if stuck is not None and self._is_stuck(stuck.get_loop(), thread):
            stuck.get_loop().call_soon_threadsafe(self.give_up)

    def give_up(self, reason: str = "") -> None:
        """Report that the scene does not end. Only the loop may call this method. reason: what the scene's threads do
        forever; "" if they wait."""
        if self._stuck is not None and not self._stuck.done():
            self._stuck.set_result(reason)

    def _is_stuck(self, loop: Any, thread: threading.Thread) -> bool:
        """Tell whether all other threads wait in vain, the loop is idle, and nothing is given or taken meanwhile."""
        others = set(threading.enumerate()) - {*self._earlier, thread}
        if not all(any(turns.is_short for turns in self._followed.get(other, ())) for other in others):
            return False
        before = self._counts()
        timers = sum(not timer.cancelled() for timer in list(loop._scheduled))
        if loop._ready or timers > 1:  # `whole` has one timer
            return False
        frame = sys._current_frames().get(thread.ident or 0)
        waits = frame is not None and (_module(frame), frame.f_code.co_name) == ("selectors", "select")
        return waits and self._counts() == before

    def _counts(self) -> list[tuple[int, int]]:
        return [turns.counts for followed in self._followed.values() for turns in followed]


def hang(
    scene: asyncio.Task[Any], earlier: Collection[threading.Thread], seconds: float | None, reason: str = ""
) -> HangError:
    """Return the error of a scene in the running loop that has not ended after this many seconds.

    seconds: None means that the scene cannot end. earlier: threads that do not belong to the scene. reason: what the
    scene's threads do forever; "" if they wait.
    """
    threads = [thread for thread in threading.enumerate() if thread not in earlier]
    others = filter(lambda thread: thread is not threading.current_thread(), threads)
    tasks = sorted(asyncio.all_tasks() - {asyncio.current_task()}, key=lambda task: _number(task.get_name()))
    stacks = [stack for stack in map(_stack, others) if _is_to_blame(stack) and not reason]
    generators = [each for each in asyncio.get_running_loop()._asyncgens if each.ag_await is not None]
    roots = [list(_awaited(root)) for root in (*(task.get_coro() for task in tasks), *generators)]
    waiting = list(filter(_is_to_blame, roots))
    lines = [reason] * bool(reason) + [_line(stack, seconds) for stack in [*stacks, *waiting]]
    general = [reason, *sorted(set(map(_reason, stacks))), *{_reason(stack) for stack in waiting} & {GIVEN["stop"]}]
    missing = {_reason(stack) for stack in roots if not _own(stack)} & {NO_UPDATE}
    if not lines:
        missing = missing or {_reason(list(_awaited(scene.get_coro()))) or "what it waits for does not come"}
    of_the_test = [f"the test {_waits(seconds)}: {what}" for what in missing]
    return HangError("\n".join(dict.fromkeys([*lines, *of_the_test])), "\n".join(general))


def blocked_loop(thread: threading.Thread, seconds: float) -> HangError:
    """Return the error of a scene whose loop, in this thread, has been blocked for this many seconds."""
    stack = _stack(thread)
    who = _place(stack) or "a coroutine"
    told = f"{who} has blocked the event loop for {seconds:g} s: wait with `await`, so that others can go on"
    return HangError(told + _code(stack), "the event loop is blocked")


def _number(name: str) -> int:
    """Return the number in a task's default name. Tasks are numbered in the order of their creation. Return 0 for any
    other name."""
    return int(name.removeprefix("Task-")) if re.fullmatch(r"Task-\d+", name) else 0


def _stack(thread: threading.Thread) -> list[FrameType]:
    """Return a thread's frames, the outermost first."""
    frame = sys._current_frames().get(thread.ident or 0)
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _awaited(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine, of the coroutine or generator that it awaits, and so on."""
    while awaited is not None:
        for kind in ("cr", "ag", "gi"):
            if frame := getattr(awaited, f"{kind}_frame", None):
                yield frame
        if inspect.iscoroutine(awaited):
            awaited = awaited.cr_await
        elif inspect.isasyncgen(awaited):
            awaited = awaited.ag_await
        else:  # such as the result of `__anext__`, which does not name its generator
            return


def _is_to_blame(stack: list[FrameType]) -> bool:
    """Tell whether code under test is among these functions, and no step of the test's engine is."""
    return bool(_own(stack)) and all(frame.f_code.co_name != "step" for frame in stack)


def _line(stack: list[FrameType], seconds: float | None) -> str:
    reason = _reason(stack)
    return f"{_place(stack)} {_waits(seconds)}{reason and f': {reason}'}{_code(stack)}"


def _waits(seconds: float | None) -> str:
    return "waits for ever" if seconds is None else f"is still waiting after {seconds:g} s"


def _own(stack: list[FrameType]) -> list[FrameType]:
    """Return the frames of the code under test. Leave out private functions, unless the last frame is private."""
    own = [frame for frame in stack if _module(frame).partition(".")[0].startswith(("tiny_llm", "mutant_"))]
    return [frame for frame in own if frame is own[-1] or not re.match("_[^_]", frame.f_code.co_name)]


def _reason(stack: list[FrameType]) -> str:
    """Return why these functions wait, such as "no event comes". Return "" if the reason is unknown."""
    names = [frame.f_code.co_name for frame in _own(stack)]
    if names and names[-1] in GIVEN:
        return GIVEN[names[-1]]
    known = (REASONS.get((_module(frame), frame.f_code.co_name)) for frame in reversed(stack))
    return next(filter(None, known), "")


def _place(stack: list[FrameType]) -> str:
    """Name the functions of the code under test, from the outermost to the innermost, each with its file and line."""
    return " > ".join(
        f"`{frame.f_code.co_name}` ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" for frame in _own(stack)
    )


def _code(stack: list[FrameType]) -> str:
    """Return the line of code at which the innermost function of the code under test waits."""
    own = _own(stack)
    line = linecache.getline(own[-1].f_code.co_filename, own[-1].f_lineno).strip() if own else ""
    return f"\n    {line}" if line else ""


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
