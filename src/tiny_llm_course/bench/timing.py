"""Measures the time of a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

__all__ = ["shortest"]

LEAST, MOST = 3, 200  # runs


def shortest(work: Callable[[], Any], seconds: float) -> float:
    """Return the time of the shortest of several runs, in seconds. Other programs can only slow a run down, so the
    shortest time is nearest to the truth.

    work: a function that returns arrays to compute. seconds: the time for all runs. The first run compiles kernels and
    allocates memory, so it counts only if it alone takes longer than `seconds`.
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
