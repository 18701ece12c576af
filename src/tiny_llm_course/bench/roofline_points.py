"""The points of a roofline: passes over a model, the cost of each pass, and the speed at which the pass can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tiny_llm_given.config import ModelConfig

__all__ = ["BATCH", "CASES", "Costs", "Machine", "Point", "points"]

CASES = (("prefill", 128, 128), ("prefill", 512, 512), ("decode", 1, 129), ("decode", 1, 513), ("batch", 1, 513))
BATCH = 16  # requests


class PassCost(Protocol):
    """The cost of a pass over a model: operations, bytes, and operations per byte."""

    @property
    def operations(self) -> float: ...
    @property
    def bytes(self) -> float: ...
    @property
    def intensity(self) -> float: ...


class Machine(Protocol):
    """The limits of a processor."""

    @property
    def ridge(self) -> float: ...
    def seconds(self, cost: PassCost, /) -> float: ...


class Costs(Protocol):
    """The module `costs` of the reference or of a learner's package."""

    Cost: Callable[[float, float], PassCost]  # operations, bytes
    Machine: Callable[[float, float], Machine]  # peak, bandwidth

    def model_cost(self, config: ModelConfig, L: int, S: int, bytes_per_weight: float) -> PassCost: ...


@dataclass(frozen=True)
class Point:
    """A pass over a model: its cost, and the speed at which the pass would run if only reading memory and
    arithmetic took time."""

    name: str  # the end of the point's key in messages.toml, after "roofline_"
    L: int
    S: int
    intensity: float
    rate: float  # operations per second
    tokens: float  # per second
    waits_for_memory: bool


def points(costs: Costs, config: ModelConfig, machine: Machine, bytes_per_weight: float) -> Iterator[Point]:
    """Yield the points that show a model of these sizes on the roofline of a machine."""
    for name, L, S in CASES:
        if config.max_position_embeddings < S:
            continue
        cost, requests = costs.model_cost(config, L, S, bytes_per_weight), 1
        if name == "batch":  # weights are read once for all requests, caches once per request
            per_position = (cost.bytes - costs.model_cost(config, 1, 1, bytes_per_weight).bytes) / (S - 1)
            requests = BATCH
            cost = costs.Cost(BATCH * cost.operations, cost.bytes + (BATCH - 1) * S * per_position)
        seconds = machine.seconds(cost)
        rates = cost.operations / seconds, requests * L / seconds
        yield Point(name, L, S, cost.intensity, *rates, cost.intensity < machine.ridge)
