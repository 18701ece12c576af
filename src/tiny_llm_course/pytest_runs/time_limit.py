"""Ends a test that takes too long, at the line where it is. The time that a compiler takes does not count."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

__all__ = ["TimedOut", "end_time_limit", "leave_out_compiling", "time_limit"]

_COMPUTING = 3  # a loop without an end is found after a third of the limit: it computes all the time
_TIMERS = {"ITIMER_REAL": "SIGALRM", "ITIMER_PROF": "SIGPROF"}


class TimedOut(BaseException):
    """A test took too long: says how long. No Exception, so that a learner's `except Exception` does not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimedOut in the block after `seconds` on the clock, or after a third of them in processor time.

    Waiting is allowed for longer than computing because a busy machine makes a test wait, but not compute. On a system
    without these signals the block has no limit.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return

    def time_out(number: int, frame: FrameType | None) -> None:
        of_computing = number == signal.SIGPROF
        raise TimedOut(f"{seconds / _COMPUTING:.2g} seconds of computing" if of_computing else f"{seconds:g} seconds")

    before = {name: signal.signal(getattr(signal, name), time_out) for name in _TIMERS.values()}
    _set([seconds, seconds / _COMPUTING])
    try:
        yield
    finally:
        end_time_limit()
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def end_time_limit() -> None:
    """Let the current test run for as long as it likes."""
    if hasattr(signal, "setitimer"):
        _set([0, 0])


@cache
def leave_out_compiling(tell: Callable[[str], None]) -> None:
    """Stop the clock while the main thread waits for a compiler, from now on until the process ends.

    Packages with kernels announce the compiler by audit events. tell: gets the file's name, and "" at the end.
    """
    left: list[float] = []

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("kernel.compiling", "kernel.compiled"):
            return
        if threading.current_thread() is not threading.main_thread():
            return
        if event == "kernel.compiling":
            left[:] = _set([0, 0])
            tell(str(arguments[0]))
        else:
            if any(left):  # it ran
                _set(left)
            tell("")

    if hasattr(signal, "setitimer"):
        sys.addaudithook(look)


def _set(seconds: list[float]) -> list[float]:
    """Set both timers; 0 stops one. Returns what was left of each."""
    timers = [getattr(signal, name) for name in _TIMERS]
    return [signal.setitimer(timer, value)[0] for timer, value in zip(timers, seconds, strict=True)]
