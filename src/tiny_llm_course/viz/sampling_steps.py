"""The probabilities of the next token after each step of the sampler."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Array

__all__ = ["SamplingStep", "percent"]


@dataclass(frozen=True)
class SamplingStep:
    """The probabilities of all tokens after a step. Shapes: probs: V."""

    name: str
    probs: Array

    @property
    def kept(self) -> int:
        """Return the number of tokens that the sampler can still choose."""
        return int((self.probs > 0).sum())

    def shares(self, tokens: list[int]) -> list[float]:
        """Return the probability of each of these tokens, followed by the sum of the probabilities of all other
        tokens."""
        return [*self.probs[tokens].tolist(), float(np.delete(self.probs, tokens).sum())]


def percent(share: float) -> str:
    """Return a probability as a percentage, or a dash for 0."""
    if share <= 0:
        return "-"
    return f"{share:.1%}" if share >= 0.0005 else "<0.1%"
