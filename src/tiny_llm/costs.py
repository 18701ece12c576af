"""The cost of a forward pass in operations and bytes, which limit how fast the pass can be."""

from dataclasses import dataclass

from tiny_llm_given.config import ModelConfig

__all__ = ["Cost", "Machine", "model_cost"]


@dataclass(frozen=True)
class Cost:
    """The cost of one forward pass: how many operations (multiplications and additions) it takes, and how many bytes it
    moves to or from memory."""

    operations: float
    bytes: float

    @property
    def intensity(self) -> float:
        """Return the number of operations per byte moved."""
        return self.operations / self.bytes


@dataclass(frozen=True)
class Machine:
    """The limits of a processor: `peak` in operations per second, `bandwidth` in bytes per second."""

    peak: float
    bandwidth: float

    def seconds(self, cost: Cost) -> float:
        """Return the shortest time for a pass, in seconds. Arithmetic and memory traffic overlap, so the pass takes as
        long as the slower of the two."""
        return max(cost.operations / self.peak, cost.bytes / self.bandwidth)

    @property
    def ridge(self) -> float:
        """Return the intensity, in operations per byte, below which memory traffic takes longer than arithmetic."""
        return self.peak / self.bandwidth


def model_cost(config: ModelConfig, L: int, S: int, bytes_per_weight: float = 2) -> Cost:
    """Compute the cost of one pass over L new tokens, which attend causally to S positions, including their own.

    `operations` counts the multiplications and additions of all matrix products: of the linear layers for each token,
    of attention (two products) for each query and each visible position, and of the output layer for the last token.
    `bytes` counts each weight matrix once, including the output layer's, at bytes_per_weight bytes per number; and in
    each layer the keys and values of S positions, at 2 bytes per number. Activations, norms, biases and the rows that
    the embedding looks up are left out, because they are small.
    L, S: as in `causal_mask`. bytes_per_weight: 2 for bfloat16; 4.5 / 8 for 4-bit weights with a 16-bit scale and a
    16-bit bias for each group of 64 weights.

    Raises:
        ValueError: L is less than 1, or S is less than L. `_check_lengths` (given) raises this error.

    Task: w2d2.1
    """
    _check_lengths(L, S)
    raise NotImplementedError(
        "Week 2 Day 2 Task 1: model_cost is yours to write. "
        "Chapter: Measuring, and a first kernel. "
        "Test: ./course test w2d2.1"
    )


def _check_lengths(L: int, S: int) -> None:
    if not 1 <= L <= S:
        raise ValueError(f"expected 1 new token or more, and no more than positions, got L = {L}, S = {S}")
