"""FlashAttention, on the CPU and on a GPU: attention whose L x S scores are never in memory as a whole."""

import math
from pathlib import Path

import mlx.core as mx

from tiny_llm_native import fallback
from tiny_llm_native.extension import kernel
from tiny_llm_native.metal import MetalKernel, metal, uses_metal

__all__ = ["attention_online", "flash_attention", "flash_attention_metal"]

_HERE = Path(__file__).parent
_CPP, _METAL = _HERE / "attention.cpp", _HERE / "attention.metal"
_FEW = 32  # queries: for more than 32, blocks of queries are faster
_BLOCK_TASK, _PART_TASK = "w2d7.4", "w2d7.5"  # in Metal, like the constants after this line
_FEW_IN_METAL = 8
_LARGEST = 256  # numbers in a head: blocks of a head have to fit into threadgroup memory
_QUERIES, _THREADS = 32, 128  # queries per block, threads per threadgroup
_PART, _ROWS = 64, 8  # keys per part, queries per threadgroup
_INPUTS, _FOUND = ("query", "key", "value", "scale", "causal"), ("maxima", "totals", "sums")


def attention_online(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | None = None,
    mask: mx.array | str | None = None,
    block: int = 64,
) -> mx.array:
    """Compute grouped attention, `block` keys at a time: no more than `block` keys are scored, or converted to float32,
    at once.

    Shapes: query: N.. x H_q x L x D, key and value: N.. x H_kv x S x D, mask: broadcastable to N.. x H_q x L x S
    -> N.. x H_q x L x D. Query head h reads key/value head h // (H_q / H_kv). query, key, value and the result have the
    same float dtype; the arithmetic is float32.
    scale: None means 1/sqrt(D).
    mask: an additive array; "causal", for L queries at the last L of S positions; or None. The result of a query that
        sees no key at all is NaN, as with softmax.
    Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", arXiv:1805.02867.

    Raises:
        ValueError: shapes or dtypes do not match, there are queries but no keys, or the mask is a string other than
            "causal". `_check_inputs` (given) raises this error.

    Task: w2d7.1
    """
    _check_inputs(query, key, value, mask)
    raise NotImplementedError(
        "Week 2 Day 7 Task 1: attention_online is yours to write. Chapter: FlashAttention. Test: ./course test w2d7.1"
    )


def flash_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | None = None,
    mask: mx.array | str | None = None,
) -> mx.array:
    """Compute grouped attention with a kernel, with the same result as `attention_online`.

    The kernel handles many queries in blocks; for a few queries, as in decoding, threads divide the keys among
    themselves. The kernel reads keys and values in place: it does not copy a view of a longer cache, and reads nothing
    past the last key. If the mask is an array, which generation never passes, MLX's own operations run instead. If the
    default device is a GPU and you have written the Metal kernel, `flash_attention_metal` runs instead.
    Source: Dao et al. 2022, "FlashAttention", arXiv:2205.14135; Dao et al. 2023, "Flash-Decoding for long-context
    inference".

    Raises:
        ValueError: as in `attention_online`.
    """
    if uses_metal(_METAL, _PART_TASK if query.shape[-2] <= _FEW_IN_METAL else _BLOCK_TASK):
        return flash_attention_metal(query, key, value, scale, mask)
    _check_inputs(query, key, value, mask)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    few = query.shape[-2] <= _FEW
    run = kernel(_CPP, "attend_split_kv", "w2d7.3") if few else kernel(_CPP, "attend_blocks", "w2d7.2")
    if run is None or isinstance(mask, mx.array):
        return fallback.attention(query, key, value, scale, mask)
    return run([query, key, value], [(query.shape, query.dtype)], [scale, mask is not None])[0]


def flash_attention_metal(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | None = None,
    mask: mx.array | str | None = None,
) -> mx.array:
    """Compute the same result as `flash_attention` on a GPU, or in metal_host if there is none.

    For up to 8 queries, each simdgroup takes a part of the keys, and a second pass joins the results of these parts.
    More queries are handled in blocks. The kernel copies no view of a longer cache, and no other view whose strides let
    N.. and heads merge into a single axis. For heads of more than 256 numbers, MLX's own operations run instead.
    """
    _check_inputs(query, key, value, mask)
    few = query.shape[-2] <= _FEW_IN_METAL
    run = (
        metal(_METAL, "attend_part", _INPUTS, _FOUND, _PART_TASK, contiguous=False)
        if few
        else metal(_METAL, "attend_blocks", [*_INPUTS, "group"], ["out"], _BLOCK_TASK, contiguous=False)
    )
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if query.size == 0 or isinstance(mask, mx.array) or query.shape[-1] > _LARGEST:
        return fallback.attention(query, key, value, scale, mask)
    rows = [x.reshape(-1, *x.shape[-2:]) for x in (query, key, value)]  # N.. as further heads
    inputs = [*rows, mx.array(scale, mx.float32), mx.array(mask is not None)]
    return (_attend_split_kv if few else _attend_blocks)(run, inputs).reshape(query.shape)


def _attend_blocks(run: MetalKernel, inputs: list[mx.array]) -> mx.array:
    query, key = inputs[:2]
    heads, L, D = query.shape
    group = mx.array(heads // key.shape[0], mx.uint32)
    grid, threads = (_THREADS * -(-L // _QUERIES), heads, 1), (_THREADS, 1, 1)
    out = [(query.shape, query.dtype)]
    return run([*inputs, group], out, grid, threads, [("T", query.dtype), ("D", D)])[0]


def _attend_split_kv(run: MetalKernel, inputs: list[mx.array]) -> mx.array:
    query, key = inputs[:2]
    heads, L, D = query.shape
    kv_heads, S = key.shape[:2]
    parts, rows = -(-S // _PART), heads * L // kv_heads
    found = [((heads * L, parts, *last), mx.float32) for last in ((), (), (D,))]
    grid, threads = (32 * parts, rows, kv_heads), (32, min(rows, _ROWS), 1)
    of_parts = run(inputs, found, grid, threads, [("T", query.dtype), ("D", D)])
    join = metal(_METAL, "join_split_kv", _FOUND, ["out"])
    out = [((heads * L, D), query.dtype)]
    return join(of_parts, out, (D, heads * L, 1), (min(D, 32), 1, 1), [("T", query.dtype)])[0]


def _check_inputs(query: mx.array, key: mx.array, value: mx.array, mask: mx.array | str | None) -> None:
    _check_sizes(query, key, value)
    _check_dtypes(query, key, value)
    L, S = query.shape[-2], key.shape[-2]
    if isinstance(mask, str) and mask != "causal":
        raise ValueError(f'mask: expected an array, "causal" or None, got {mask!r}')
    if isinstance(mask, mx.array) and not mx.issubdtype(mask.dtype, mx.floating):
        raise ValueError(f"mask: expected numbers of a float dtype, which are added to the scores, got {mask.dtype}")
    if isinstance(mask, str) and S < L:
        raise ValueError(f"causal: expected no more queries than keys, got L = {L}, S = {S}")
    if L and not S:
        raise ValueError("expected one key or more, got none")


def _check_sizes(query: mx.array, key: mx.array, value: mx.array) -> None:
    if query.ndim < 3 or not query.shape[-1]:
        raise ValueError(f"query: expected shape N.. x H_q x L x D, got {query.shape}")
    *batch, H_q, _, D = query.shape
    if key.ndim != query.ndim or key.shape[:-3] != tuple(batch) or key.shape[-1] != D:
        expected = " x ".join(map(str, [*batch, "H_kv", "S", D]))
        raise ValueError(f"key: expected shape {expected}, got {key.shape}")
    if value.shape != key.shape:
        raise ValueError(f"value: expected shape {key.shape}, as key has, got {value.shape}")
    H_kv = key.shape[-3]
    if H_kv < 1 or H_q % H_kv:
        raise ValueError(f"query heads: expected a multiple of the {H_kv} key/value heads, got {H_q}")


def _check_dtypes(*arrays: mx.array) -> None:
    dtypes = [array.dtype for array in arrays]
    if len(set(dtypes)) > 1 or not mx.issubdtype(dtypes[0], mx.floating):
        raise ValueError(f"query, key, value: expected one float dtype, got {', '.join(map(str, dtypes))}")
