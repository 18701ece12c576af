"""RoPE in one pass over memory, with no table of sines and cosines, on the CPU and on a GPU."""

import math
from functools import cache
from pathlib import Path

import mlx.core as mx
import numpy as np

from tiny_llm_native import fallback
from tiny_llm_native.extension import kernel
from tiny_llm_native.metal import metal, uses_metal

__all__ = ["rope", "rope_metal"]

_HERE = Path(__file__).parent
_CPP, _METAL = _HERE / "rope.cpp", _HERE / "rope.metal"
_METAL_TASK = "w2d5.5"
_HEADS = 4  # per thread


def rope(x: mx.array, offset: int | mx.array, base: float, traditional: bool = False) -> mx.array:
    """Apply rotary positional encoding: rotate pair i of a head's D numbers at position p by p * base^(-2i/D).

    The pairs are (x[i], x[i + D/2]) or, if `traditional`, neighbours (x[2i], x[2i + 1]).
    Shapes: x: B x L x H x D -> the same shape. The dtype is kept; the arithmetic is float32. Sines and cosines are
    accurate to 1e-6 at every position up to 2^20 (a float32 angle would be off by 0.002 radians at position 40,000).
    offset: the first position of all rows (an integer or a 0-d array), or of each row (an integer array of B).
    If the default device is a GPU and you have written the Metal kernel, `rope_metal` runs instead.

    Raises:
        ValueError: x is not B x L x H x D with D even, or has no float dtype; `offset` is neither an integer nor B
            integers.
    """
    if uses_metal(_METAL, _METAL_TASK):
        return rope_metal(x, offset, base, traditional)
    offsets = _offsets(x, offset)
    run = kernel(_CPP, "rope", "w2d5.2")
    if run is None:
        return fallback.rope(x, offsets, base, traditional)
    return run([x, offsets], [(x.shape, x.dtype)], [base, traditional])[0]


def rope_metal(x: mx.array, offset: int | mx.array, base: float, traditional: bool = False) -> mx.array:
    """Compute the same result as `rope` on a GPU, or in metal_host if there is none. A thread rotates one pair in a few
    heads."""
    offsets = _offsets(x, offset)
    run = metal(_METAL, "rope", ["x", "offsets", "frequency", "traditional"], ["out"], _METAL_TASK)
    if x.size == 0:
        return x
    B, L, H, D = x.shape
    inputs: list[mx.array | float] = [x, offsets, _frequencies(D, base), traditional]
    grid, group = (D // 2, B * L, -(-H // _HEADS)), (32, 8, 1)
    return run(inputs, [(x.shape, x.dtype)], grid, group, [("T", x.dtype)])[0]


@cache
def _frequencies(D: int, base: float) -> mx.array:
    """Return the fraction of a turn by which each pair rotates from one position to the next, multiplied by 2^64.

    Shapes: -> 1 x (D / 2), uint64.
    """
    turns = float(base) ** (-np.arange(0, D, 2) / D) / (2 * math.pi) % 1  # a base below 1 may give whole turns
    return mx.array((turns * 2.0**64).astype(np.uint64)[None])


def _offsets(x: mx.array, offset: int | mx.array) -> mx.array:
    """Return the first position of each row, in int32."""
    _check_input(x)
    offsets = mx.array(offset)
    _check_offsets(offsets, x.shape[0])
    return mx.broadcast_to(offsets.astype(mx.int32), x.shape[:1])


def _check_input(x: mx.array) -> None:
    if x.ndim != 4 or x.shape[-1] % 2 or not mx.issubdtype(x.dtype, mx.floating):
        raise ValueError(f"x: expected shape B x L x H x D, D even, of a float dtype, got {x.shape} of {x.dtype}")


def _check_offsets(offsets: mx.array, B: int) -> None:
    if offsets.shape not in ((), (B,)) or not mx.issubdtype(offsets.dtype, mx.integer):
        raise ValueError(f"offset: expected an integer, or {B} of them, got {offsets.shape} of {offsets.dtype}")
