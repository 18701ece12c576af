"""Waits for another process that gives no signal, and Ctrl-C. Only this file of the tests sleeps."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

__all__ = ["restore_ctrl_c", "until"]

PAUSE = 0.01  # seconds between two looks


def until(holds: Callable[[], object], seconds: float = 60, *, told: Callable[[], object] = lambda: "") -> None:
    """Return once a condition holds. After this many seconds, fail with the text that `told` returns."""
    __tracebackhide__ = True
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"this did not come true in {seconds:g} seconds. {told()}"
        time.sleep(PAUSE)


def restore_ctrl_c() -> None:
    """Let Ctrl-C end a new process, even in a shell's background job, which would ignore the signal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
