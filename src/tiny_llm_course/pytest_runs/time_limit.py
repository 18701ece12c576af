"""Ends a test that takes too long, at the line that is running. The time for compiling does not count."""

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

_COMPUTING = 3  # an endless loop computes all the time, so the loop is ended after a third of the limit
_TIMERS = {"ITIMER_REAL": "SIGALRM", "ITIMER_PROF": "SIGPROF"}


class TimedOut(BaseException):
    """The error of a test that exceeded its time limit. The error's message is the limit.

    The class is derived from BaseException, so that a learner's `except Exception` does not catch the error.
    """


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimedOut in the block after `seconds` seconds of wall-clock time, or after a third as many seconds of
    processor time.

    The limit on processor time is lower, because a busy machine makes a test wait longer but not compute longer. On a
    system without timer signals, the block has no limit.
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
    """Remove the time limit of the current test."""
    if hasattr(signal, "setitimer"):
        _set([0, 0])


@cache
def leave_out_compiling(tell: Callable[[str], None]) -> None:
    """Stop the clock whenever the main thread waits for a compiler, from now until the process ends.

    Packages with kernels raise an audit event when a compiler starts, and another event when the compiler has ended.
    tell: a function that is called with the compiled file's name at the first event, and with "" at the second event.
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
            if any(left):  # the clock was running
                _set(left)
            tell("")

    if hasattr(signal, "setitimer"):
        sys.addaudithook(look)


def _set(seconds: list[float]) -> list[float]:
    """Set both timers to these seconds; 0 stops a timer. Return the seconds that each timer had left."""
    timers = [getattr(signal, name) for name in _TIMERS]
    return [signal.setitimer(timer, value)[0] for timer, value in zip(timers, seconds, strict=True)]
