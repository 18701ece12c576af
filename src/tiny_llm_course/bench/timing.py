"""How long something takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

__all__ = ["shortest"]

LEAST, MOST = 3, 200  # runs


def shortest(work: Callable[[], Any], seconds: float) -> float:
    """Return the shortest of several runs: whatever else the machine does can only slow one down.

    work: gives arrays that are to be computed. The first run, in which kernels are compiled and memory is fetched,
    counts only if it takes longer than all the time that there is.
    """
    first = _once(work)
    if first > seconds:
        return min(first, _once(work)) if first < 4 * seconds else first
    end = time.perf_counter() + seconds
    times: list[float] = []
    while len(times) < LEAST or (time.perf_counter() < end and len(times) < MOST):
        times.append(_once(work))
    return min(times)


def _once(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    mx.eval(work())
    return time.perf_counter() - start
