"""Measures figures, if possible while no other program keeps the machine busy, and says which figures are in doubt."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..base.machine import processors
from ..ui import Messages

__all__ = ["AGAIN", "BUSY", "MOST_SECONDS", "Counters", "Quiet", "counters", "doubt_text"]

T = TypeVar("T")

BUSY = "busy"  # a reason to doubt a figure: other programs ran
AGAIN, AGAIN_IN_ALL = 2, 8  # the most repeated measurements: of one figure, and in a whole run
MOST_OTHERS = 0.5  # other programs may use this many of the processors that the kernels need
MOST_SECONDS = 20.0  # a longer measurement is not repeated, since the user is waiting
LEAST_SECONDS = 0.2  # for a shorter measurement, the system's counters, in ticks of 10 ms, are too coarse


class Counters(NamedTuple):
    """Times up to now, in seconds. wall: time on the clock. all: processor time of all programs; None if the system
    does not count this time. own: processor time of this process.
    """

    wall: float
    all: float | None
    own: float


class Quiet:
    """The measurement of figures, which is repeated if other programs ran meanwhile.

    threads: the number of threads that the kernels use. tell: a function that is called with the reason why a figure is
    measured again, and with the number of processors that other programs used. read: a function that returns the
    counters. again: how often one figure may be measured again. most: the largest number of processors that other
    programs used during a measurement that stayed in doubt.
    """

    def __init__(
        self,
        threads: int,
        tell: Callable[[str, float], None],
        again: int = AGAIN,
        read: Callable[[], Counters] | None = None,
    ):
        self._spare, self._tell, self._read = max(0, processors() - threads), tell, read or counters
        self._again, self._left = again, AGAIN_IN_ALL
        self.most = 0.0

    def measure(
        self, work: Callable[[], T], best: Callable[[T, T], T], doubt: Callable[[T], str | None] = lambda figure: None
    ) -> tuple[T, str | None]:
        """Return the result of `work`, and the reason to doubt this result: BUSY, or the result of `doubt`. The reason
        is None if there is no doubt.

        best: a function that returns the better of two results. Other programs can only slow `work` down, so the best
        result is nearest to the truth.
        """
        figure, others, seconds = self._watched(work)
        problem = BUSY if self._disturbs(others) else doubt(figure)
        for _ in range(self._again):
            if problem is None or not self._left or seconds > MOST_SECONDS:
                break
            self._left -= 1
            self._tell(problem, others)
            again, others, seconds = self._watched(work)
            figure = best(figure, again)
            problem = BUSY if self._disturbs(others) else doubt(figure)
        if problem == BUSY:
            self.most = max(self.most, others)
        return figure, problem

    def _watched(self, work: Callable[[], T]) -> tuple[T, float, float]:
        """Return the result of `work`, the number of processors that other programs used meanwhile, and the seconds
        that `work` took."""
        before = self._read()
        figure = work()
        after = self._read()
        seconds = after.wall - before.wall
        if before.all is None or after.all is None or seconds < LEAST_SECONDS:
            return figure, 0.0, seconds
        return figure, (after.all - before.all - (after.own - before.own)) / seconds, seconds

    def _disturbs(self, others: float) -> bool:
        return others > self._spare + MOST_OTHERS


def doubt_text(key: str, others: float, words: Messages) -> str:
    """Return the sentence about a doubt, with the number of processors that other programs used."""
    return words(key, others=f"{others:.1f}", processors=processors())


def counters() -> Counters:
    """Read this machine's counters."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return Counters(time.monotonic(), _mac_seconds() if sys.platform == "darwin" else _linux_seconds(), own)


def _linux_seconds(file: Path = Path("/proc/stat")) -> float | None:
    """Return the seconds for which the processors that this process may use have worked, summed over these processors.
    Idle time and waiting for disks do not count; time that other virtual machines took (steal) counts as work."""
    try:
        lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = sum(sum(map(int, line[1:4] + line[6:9])) for line in lines if line and line[0] in ours)
    return ticks / os.sysconf("SC_CLK_TCK")


def _mac_seconds(library: Any = None) -> float | None:
    """Return the seconds for which the processors have worked, summed over all processors, according to macOS's
    host_statistics. The states user, system and nice count as work; the state idle does not."""
    cpu_load, count = 3, ctypes.c_uint32(4)  # HOST_CPU_LOAD_INFO, and its number of integers
    ticks = (ctypes.c_uint32 * count.value)()
    try:
        library = library or ctypes.CDLL(None)
        library.mach_host_self.restype = ctypes.c_uint32
        library.host_statistics.argtypes = [ctypes.c_uint32, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        failed = library.host_statistics(
            library.mach_host_self(), cpu_load, ctypes.addressof(ticks), ctypes.addressof(count)
        )
    except (OSError, AttributeError):
        return None
    user, system, _, nice = ticks
    return None if failed else (user + system + nice) / os.sysconf("SC_CLK_TCK")
