"""The cost of a forward pass in operations and bytes, which limit how fast the pass can be."""

from dataclasses import dataclass

from tiny_llm_given.config import ModelConfig

__all__ = ["Cost", "Machine", "model_cost"]


@dataclass(frozen=True)
class Cost:
    """The cost of one pass. operations: multiplications and additions. bytes: those moved from or to memory."""

    operations: float
    bytes: float

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.operations / self.bytes


@dataclass(frozen=True)
class Machine:
    """The limits of a processor. peak: operations per second. bandwidth: bytes per second."""

    peak: float
    bandwidth: float

    def seconds(self, cost: Cost) -> float:
        """The shortest time for a pass: arithmetic and memory work at the same time, so the slower one counts."""
        return max(cost.operations / self.peak, cost.bytes / self.bandwidth)

    @property
    def ridge(self) -> float:
        """The intensity at which both take equally long; below it, a pass waits for memory."""
        return self.peak / self.bandwidth


def model_cost(config: ModelConfig, L: int, S: int, bytes_per_weight: float = 2) -> Cost:
    """Count the cost of one pass over L new tokens, which attend causally to S positions, their own included.

    Operations are those of matrix products: the linear layers, for each token; both products of attention, for each
    query and each position that it may see; the output layer, for the last token only.
    Bytes are those of each weight matrix once, including the output layer's table, with bytes_per_weight per number;
    and those of the keys and values of S positions, with 2 bytes per number. Activations, norms, biases and the rows
    of the embedding are left out, because they are small.
    L, S: as in `causal_mask`. bytes_per_weight: 2 for bfloat16, 4.5 / 8 for 4 bits with a scale and a bias of 16 bits
    for each group of 64.

    Raises:
        ValueError: L is less than 1, or S less than L. `_check_lengths` below raises it.

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
