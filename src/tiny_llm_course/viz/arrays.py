"""The types of arrays that pictures show, and the masks of one row of a batch: causal, padding, and the two
combined."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Mask", "masks_of"]

Array: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.bool_]  # L x S: whether a query sees a key


def masks_of(causal: Mask, length: int) -> list[Mask]:
    """Return three masks of a row that has `length` tokens before the padding: causal, padding, and the two
    combined."""
    words = np.broadcast_to(np.arange(causal.shape[1]) < length, causal.shape)
    return [causal, words, causal & words]
