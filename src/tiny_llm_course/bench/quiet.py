"""Measures while nothing else keeps the machine busy, as far as that can be had, and says where it could not."""

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

BUSY = "busy"  # why a figure is in doubt: other programs ran
AGAIN, AGAIN_IN_ALL = 2, 8  # how often a figure, and all of a run together, are measured again
MOST_OTHERS = 0.5  # processors that other programs may use of those that the kernels need
MOST_SECONDS = 20.0  # what takes longer is not measured again: somebody waits
LEAST_SECONDS = 0.2  # in less time the system's ticks, of 10 ms, say nothing


class Counters(NamedTuple):
    """Seconds up to now. wall: of a clock. all: of the processors' work for whatever program; None where the system
    does not say it. own: of their work for this process.
    """

    wall: float
    all: float | None
    own: float


class Quiet:
    """Measures something, and measures it again if other programs ran meanwhile.

    threads: on which kernels run. tell: is told why something is measured again. read: gives the counters. again: how
    often one figure is measured again. most: how many processors other programs used, where a figure stayed in doubt.
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
        """Return what work gives, and why it is in doubt: BUSY, or what `doubt` says. None: there is no doubt.

        best: of two results of work. Other programs only slow it down, so the best of several comes nearest.
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
        """Return what work gives, how many processors other programs used meanwhile, and how many seconds it took."""
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
    """Return the sentence about a doubt, which says how many processors other programs used."""
    return words(key, others=f"{others:.1f}", processors=processors())


def counters() -> Counters:
    """Read this machine's counters."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return Counters(time.monotonic(), _mac_seconds() if sys.platform == "darwin" else _linux_seconds(), own)


def _linux_seconds(file: Path = Path("/proc/stat")) -> float | None:
    """Count the seconds of the processors that this process may use, without idling and waiting for disks. What another
    virtual machine took (steal) counts."""
    try:
        lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = sum(sum(map(int, line[1:4] + line[6:9])) for line in lines if line and line[0] in ours)
    return ticks / os.sysconf("SC_CLK_TCK")


def _mac_seconds(library: Any = None) -> float | None:
    """Count the seconds of all processors, from the kernel's host_statistics: user, system and nice, without idle."""
    cpu_load, count = 3, ctypes.c_uint32(4)  # HOST_CPU_LOAD_INFO, and how many numbers it has
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
