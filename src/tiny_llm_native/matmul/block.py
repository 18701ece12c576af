"""Operations on packed weights: a transformer block in two ops, the last norm with the output layer, and embedding."""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path

import mlx.core as mx

from ..extension import Kernel, kernel_without_fallback
from .arithmetic import flags
from .packed import GROUP, ROWS, UNQUANTISED_WORDS

__all__ = ["after_attention", "before_attention", "embed", "join", "norm_matmul"]

_FILE = Path(__file__).parent / "block.cpp"
_UNQUANTISED = Path(__file__).parent / "unquantised.cpp"


def join(panels: Sequence[mx.array]) -> list[mx.array]:
    """Return copies of the panels of several weights, all in the memory of one array, which large pages can hold.

    Decoding reads each weight once. With small pages, the processor would have to search for an address every 4 KiB.
    """
    size = sum(x.size for x in panels)
    (joined,) = _kernel("join", panels[0])([mx.contiguous(x) for x in panels], [((size,), mx.uint32)])
    parts = mx.split(joined, list(accumulate(x.size for x in panels[:-1])))
    return [part.reshape(x.shape) for part, x in zip(parts, panels, strict=True)]


def before_attention(
    x: mx.array,
    norm: mx.array,
    qkv: mx.array,
    head_norms: Sequence[mx.array] | None,
    bias: mx.array | None,
    heads: tuple[int, int, int],
    eps: float,
    base: float,
    offset: int | mx.array,
) -> list[mx.array]:
    """Compute a block up to attention: norm, projections, norms of queries and keys, RoPE on halves.

    Shapes: x: B x L x E, norm: E, qkv: panels of (H_q + 2 H_kv) * D rows, head_norms: two arrays of D, or None,
    bias: one number per row, or None -> queries B x H_q x L x D, keys and values B x H_kv x L x D.
    heads: H_q, H_kv, D. offset: the position of the first token, or an int32 array of B such positions.
    """
    H_q, H_kv, D = heads
    B, L, _ = x.shape
    offsets, first = (offset, 0) if isinstance(offset, mx.array) else (_nothing(mx.int32), offset)
    extras = [*(head_norms or (_nothing(), _nothing())), _nothing() if bias is None else bias, offsets]
    shapes = [((B, H, L, D), x.dtype) for H in (H_q, H_kv, H_kv)]
    return _kernel("before_attention", qkv)([x, norm, qkv, *extras], shapes, [eps, base, first])


def after_attention(
    attended: mx.array, x: mx.array, o: mx.array, norm: mx.array, gate_up: mx.array, down: mx.array, eps: float
) -> mx.array:
    """Compute a block after attention: output projection, sum, norm, SwiGLU, sum.

    Shapes: attended: B x H_q x L x D, x: B x L x E, o: panels of E rows, norm: E, gate_up: alternating panels of gate
    and up, down: panels of E rows -> B x L x E.
    """
    run = _kernel("after_attention", o)
    return run([mx.contiguous(attended), x, o, norm, gate_up, down], [(x.shape, x.dtype)], [eps])[0]


def norm_matmul(x: mx.array, norm: mx.array, panels: mx.array, eps: float) -> mx.array:
    """Compute RMSNorm, then x W^T.

    Shapes: x: N.. x E, norm: E, panels of O rows -> N.. x O.
    """
    shape = (*x.shape[:-1], panels.shape[0] * ROWS)
    return _kernel("norm_matmul", panels)([mx.contiguous(x), norm, panels], [(shape, x.dtype)], [eps])[0]


def embed(tokens: mx.array, panels: mx.array, dtype: mx.Dtype) -> mx.array:
    """Return the embeddings of these tokens: rows of the table that `panels` contains.

    Shapes: tokens: N.., int32 -> N.. x E.
    """
    return _kernel("embed", panels)([tokens, panels], [((*tokens.shape, panels.shape[1] * GROUP), dtype)])[0]


@cache
def _nothing(dtype: mx.Dtype = mx.float32) -> mx.array:
    """Return an empty array. The array is made only once, because making an array in each call would cost time."""
    nothing = mx.zeros((0,), dtype)
    mx.eval(nothing)
    return nothing


def _kernel(name: str, panels: mx.array) -> Kernel:
    """Return the operation for panels like these. The length of their last axis tells how weights are stored."""
    if panels.shape[2] == UNQUANTISED_WORDS:
        return kernel_without_fallback(_UNQUANTISED, name)
    return kernel_without_fallback(_FILE, name, flags())
