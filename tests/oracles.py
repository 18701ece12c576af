"""The course's formulas in NumPy float64, as plain as possible: slow, exact, and independent of the course's code."""

from __future__ import annotations

import numpy as np

__all__ = ["attention", "causal_mask", "grouped_attention", "rms_norm", "rope", "silu", "softmax", "split_heads"]

Array = np.ndarray


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q: Array, k: Array, v: Array, scale: float | None = None, mask: Array | None = None) -> Array:
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = np.einsum("...ld,...sd->...ls", q, k) * scale
    return np.einsum("...ls,...sd->...ld", softmax(scores if mask is None else scores + mask), v)


def split_heads(x: Array, heads: int) -> Array:
    """Split N x L x (H*D) into N x H x L x D."""
    return np.stack(np.split(x, heads, axis=-1), axis=1)


def causal_mask(L: int, S: int) -> Array:
    return np.array([[0.0 if j <= i + S - L else -np.inf for j in range(S)] for i in range(L)])


def grouped_attention(q: Array, k: Array, v: Array, scale: float | None = None, mask: Array | None = None) -> Array:
    """Compute the attention of one query head after the other."""
    share = q.shape[-3] // k.shape[-3]
    full = None if mask is None else np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
    heads = [
        attention(
            q[..., h, :, :],
            k[..., h // share, :, :],
            v[..., h // share, :, :],
            scale,
            None if full is None else full[..., h, :, :],
        )
        for h in range(q.shape[-3])
    ]
    return np.stack(heads, axis=-3)


def rope(x: Array, positions: Array, base: float, traditional: bool) -> Array:
    """Rotate each pair of elements as one complex number. x: B x L x H x D, positions: B x L."""
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if traditional else (x[..., :half], x[..., half:])
    frequencies = base ** (-2 * np.arange(half) / x.shape[-1])
    turned = (a + 1j * b) * np.exp(1j * positions[:, :, None, None] * frequencies)
    if traditional:
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))
