"""Waiting times: from a request's arrival to its first token, and from each of its tokens to the next."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .batch import Batch
from .engine import Engine
from .request import Request

__all__ = ["Latencies", "Recorder", "StepRecord", "latencies", "percentile"]


@dataclass(frozen=True)
class Latencies:
    """The waiting times of one request, in the clock's unit.

    first: the time from the request's arrival to its first token. between: the times from each token to the next.
    """

    first: float
    between: Sequence[float]


def latencies(arrival: float, token_times: Sequence[float]) -> Latencies:
    """Return the waiting times of a request that arrived at `arrival`, and got its tokens at `token_times`, in order.
    There is at least one token.

    Task: w3d2.2
    """
    raise NotImplementedError(
        "Week 3 Day 2 Task 2: latencies is yours to write. Chapter: Chunked prefill. Test: ./course test w3d2.2"
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` per cent of all values do not exceed (nearest rank).

    percent: from 0 to 100; 0 gives the smallest value, 100 the largest.

    Raises:
        ValueError: there are no values, or `percent` is out of range. `_check_percent` (given) raises this error.

    Task: w3d2.2
    """
    _check_percent(values, percent)
    raise NotImplementedError(
        "Week 3 Day 2 Task 2: percentile is yours to write. Chapter: Chunked prefill. Test: ./course test w3d2.2"
    )


@dataclass(frozen=True)
class StepRecord:
    """A finished step. time: when the step ended. tokens: how many tokens the step computed for each request, keyed by
    the request's id."""

    time: float
    tokens: dict[str, int]


@dataclass
class Recorder:
    """An observer that records when each request arrived (`arrive`), and when the request got each of its tokens."""

    clock: Callable[[], float] = time.perf_counter
    arrivals: dict[str, float] = field(default_factory=dict)
    token_times: dict[str, list[float]] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)

    def arrive(self, request: Request) -> None:
        """Record that a request arrives now."""
        self.arrivals[request.id] = self.clock()
        self.token_times[request.id] = []

    def on_step(self, engine: Engine, batch: Batch, touched: Sequence[Request]) -> None:
        now = self.clock()
        self.steps.append(StepRecord(now, {chunk.request.id: len(chunk.tokens) for chunk in batch.chunks}))
        for request in touched:
            times = self.token_times.setdefault(request.id, [])
            times += [now] * (len(request.output) - len(times))

    def on_abort(self, engine: Engine, request: Request) -> None:
        """Do nothing: the request's records stay."""

    def of(self, request: Request) -> Latencies:
        """Return the waiting times of a request that was passed to `arrive`, and has a token."""
        return latencies(self.arrivals[request.id], self.token_times[request.id])


def _check_percent(values: Sequence[float], percent: float) -> None:
    if not values or not 0 <= percent <= 100:
        raise ValueError(f"expected values, and per cent from 0 to 100, got {len(values)} values and {percent}")
