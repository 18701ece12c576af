"""Waiting for another process that gives no signal, and Ctrl-C. This is the only file of the tests that sleeps."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

__all__ = ["restore_ctrl_c", "until"]

PAUSE = 0.01  # seconds between two looks


def until(holds: Callable[[], object], seconds: float = 60, *, told: Callable[[], object] = lambda: "") -> None:
    """Return once a condition holds. After this many seconds, fail with what `told` returns then."""
    __tracebackhide__ = True
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"this did not come true in {seconds:g} seconds. {told()}"
        time.sleep(PAUSE)


def restore_ctrl_c() -> None:
    """In a new process: Ctrl-C ends it, though a shell's background jobs ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
