"""Arrays that are drawn: the masks of a row in a batch, causal, padding, and both."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Mask", "masks_of"]

Mask: TypeAlias = NDArray[np.bool_]  # L x S: which keys each query sees


def masks_of(causal: Mask, length: int) -> list[Mask]:
    """Three masks of a row with so many words: no look ahead, no filling, neither."""
    words = np.broadcast_to(np.arange(causal.shape[1]) < length, causal.shape)
    return [causal, words, causal & words]


Array: TypeAlias = NDArray[np.float32]
