"""Each kernel's result, computed with MLX's own operations: ops use these functions if no extension is built, and tests
compare kernels with these functions."""

import math

import mlx.core as mx
import numpy as np

__all__ = [
    "add_rms_norm",
    "attention",
    "paged_attention",
    "quantized_matmul",
    "rms_norm",
    "rope",
    "softmax",
    "store_pages",
    "swiglu",
]


def softmax(x: mx.array) -> mx.array:
    return mx.softmax(x, axis=-1, precise=True)


def rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    wide = x.astype(mx.float32)
    mean = mx.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * mx.rsqrt(mean + eps) * weight).astype(x.dtype)


def add_rms_norm(x: mx.array, residual: mx.array, weight: mx.array, eps: float) -> tuple[mx.array, mx.array]:
    total = x + residual
    return total, rms_norm(total, weight, eps)


def rope(x: mx.array, offsets: mx.array, base: float, traditional: bool) -> mx.array:
    """Apply RoPE. offsets: the first position of each of the B rows. Whole turns are subtracted in float64, because
    float32 has too few bits. MLX supports float64 only on the CPU."""
    D = x.shape[-1]
    with mx.stream(mx.cpu):
        positions = (offsets[:, None] + mx.arange(x.shape[1])).astype(mx.float64)  # B, L
        frequencies = mx.array(float(base) ** (-np.arange(0, D, 2) / D) / (2 * math.pi), mx.float64)
        turns = positions[:, :, None, None] * frequencies  # B, L, 1, D/2
        angles = (turns - mx.round(turns)).astype(mx.float32) * (2 * math.pi)
        cos, sin = mx.cos(angles), mx.sin(angles)
    wide = x.astype(mx.float32)
    a, b = (wide[..., 0::2], wide[..., 1::2]) if traditional else mx.split(wide, 2, axis=-1)
    turned = [a * cos - b * sin, a * sin + b * cos]
    joined = mx.stack(turned, axis=-1).flatten(-2) if traditional else mx.concatenate(turned, axis=-1)
    return joined.astype(x.dtype)


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    wide = gate.astype(mx.float32)
    return (wide * mx.sigmoid(wide) * up).astype(gate.dtype)


def attention(
    query: mx.array, key: mx.array, value: mx.array, scale: float, mask: mx.array | str | None = None
) -> mx.array:
    """Compute attention. mask: an additive array, "causal" or None. The result of a query that sees no key is NaN."""
    *batch, H_q, L, D = query.shape
    H_kv, S = key.shape[-3:-1]
    shape = (*batch, H_kv, H_q // H_kv, L, D)  # query heads, grouped by the key head that they share
    scores = query.reshape(shape).astype(mx.float32) * scale @ key[..., None, :, :].swapaxes(-2, -1)
    if isinstance(mask, str):
        mask = mx.where(mx.arange(S) <= mx.arange(S - L, S)[:, None], 0.0, -math.inf)
    if mask is not None:
        scores = scores + mx.broadcast_to(mask, (*batch, H_q, L, S)).reshape(scores.shape)
    weights = mx.softmax(scores, axis=-1)
    return (weights @ value[..., None, :, :].astype(mx.float32)).reshape(query.shape).astype(query.dtype)


def quantized_matmul(
    x: mx.array, packed: mx.array, scales: mx.array, biases: mx.array, group_size: int, bits: int
) -> mx.array:
    scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
    weight = mx.dequantize(packed, scales, biases, group_size, bits)
    return (x.astype(mx.float32) @ weight.T).astype(x.dtype)


def paged_attention(
    query: mx.array, keys: mx.array, values: mx.array, tables: mx.array, spans: mx.array, scale: float
) -> mx.array:
    """Compute the requests one after the other, each with a contiguous copy of the request's keys and values."""
    page_size = keys.shape[2]
    places: list[list[int]] = np.array(spans, copy=False).tolist()
    found = []
    for request, (first, last, length) in enumerate(places):
        pages = tables[request, : -(-length // page_size)]
        key, value = (x[pages].swapaxes(0, 1).flatten(1, 2)[:, :length] for x in (keys, values))  # H_kv, length, D
        found.append(attention(query[first:last].swapaxes(0, 1), key, value, scale, "causal").swapaxes(0, 1))
    return mx.concatenate(found) if found else query


def store_pages(
    keys: mx.array, values: mx.array, key: mx.array, value: mx.array, pages: mx.array, places: mx.array
) -> tuple[mx.array, mx.array]:
    """Store `key` and `value` in copies of `keys` and `values`, and return the copies. The originals do not change."""
    keys, values = mx.array(keys), mx.array(values)
    keys[pages, :, places], values[pages, :, places] = key, value
    return keys, values
