"""The angles by which RoPE rotates each pair of numbers at each position."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .arrays import Array

__all__ = ["Turns"]


@dataclass(frozen=True)
class Turns:
    """The cosine and the sine of each pair's angle at each position. Shapes: cos and sin: positions x dims / 2."""

    dims: int
    base: float
    cos: Array
    sin: Array

    @property
    def scores(self) -> Array:
        """Return the dot product, at each distance, of a query and a key that are equal before RoPE. The dot products
        are scaled so that the dot product at distance 0 is 1.

        Every pair of numbers has the same weight, so the result is the mean of cos(distance * frequency) over all
        pairs.

        Shapes: -> positions.
        """
        scores = self.cos @ self.cos[0] + self.sin @ self.sin[0]
        relative: Array = scores / scores[0]
        return relative

    def period(self, pair: int) -> float:
        """Return the number of positions in which a pair makes a full turn."""
        return 2 * math.pi * math.pow(self.base, 2 * pair / self.dims)

    @property
    def title(self) -> dict[str, str]:
        """Return the values that fill in `viz_rope_title`."""
        return {"dims": str(self.dims), "base": f"{self.base:,.10g}"}
