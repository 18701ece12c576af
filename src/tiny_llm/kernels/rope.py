"""RoPE in one pass over memory, with no table of sines and cosines."""

import mlx.core as mx

from . import ops
from .extension import kernel

__all__ = ["rope"]


def rope(x: mx.array, offset: int | mx.array, base: float, traditional: bool = False) -> mx.array:
    """Rotary positional encoding: turns pair i of a head's D numbers at position p by p * base^(-2i/D).

    The pairs are (x[i], x[i + D/2]) or, where traditional, neighbours (x[2i], x[2i + 1]).
    Shapes: x: B x L x H x D -> the same. The dtype is kept; the arithmetic is float32. Sines and cosines are right to
    1e-6 at every position up to 2^20: an angle in float32 would be off by 0.002 at position 40,000.
    offset: position of the first token, or an integer array of B: one for each row (0-d: one for all).

    Raises:
        ValueError: x is not B x L x H x D with D even, or not of a float dtype; offsets are not integers, one for each
            row.
    """
    _check_input(x)
    offsets = mx.array(offset)
    _check_offsets(offsets, x.shape[0])
    run = kernel("rope", "rope", "w2d5.2")
    offsets = mx.broadcast_to(offsets.astype(mx.int32), x.shape[:1])
    if run is None:
        return ops.rope(x, offsets, base, traditional)
    return run([x, offsets], [(x.shape, x.dtype)], [base, traditional])[0]


def _check_input(x: mx.array) -> None:
    if x.ndim != 4 or x.shape[-1] % 2 or not mx.issubdtype(x.dtype, mx.floating):
        raise ValueError(f"x: expected shape B x L x H x D, D even, of a float dtype, got {x.shape} of {x.dtype}")


def _check_offsets(offsets: mx.array, B: int) -> None:
    if offsets.shape not in ((), (B,)) or not mx.issubdtype(offsets.dtype, mx.integer):
        raise ValueError(f"offset: expected an integer, or {B} of them, got {offsets.shape} of {offsets.dtype}")
