"""The points of a roofline: a pass over a model, what it costs, and how fast it can run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["BATCH", "CASES", "Point", "points"]

CASES = (("prefill", 128, 128), ("prefill", 512, 512), ("decode", 1, 129), ("decode", 1, 513), ("batch", 1, 513))
BATCH = 16  # requests


@dataclass(frozen=True)
class Point:
    """A pass over a model: what it costs, and the speed at which it would run if nothing else took time."""

    name: str  # in messages.toml, behind "roofline_"
    L: int
    S: int
    intensity: float
    rate: float  # operations per second
    tokens: float  # per second
    waits_for_memory: bool


def points(costs: Any, config: Any, machine: Any, bytes_per_weight: float) -> Iterator[Point]:
    """costs: the package's module, whose model_cost may be a learner's."""
    for name, L, S in CASES:
        if config.max_position_embeddings < S:
            continue
        cost, requests = costs.model_cost(config, L, S, bytes_per_weight), 1
        if name == "batch":  # weights are read once, each request's cache by itself
            per_position = (cost.bytes - costs.model_cost(config, 1, 1, bytes_per_weight).bytes) / (S - 1)
            requests = BATCH
            cost = costs.Cost(BATCH * cost.operations, cost.bytes + (BATCH - 1) * S * per_position)
        seconds = machine.seconds(cost)
        rates = cost.operations / seconds, requests * L / seconds
        yield Point(name, L, S, cost.intensity, *rates, cost.intensity < machine.ridge)
