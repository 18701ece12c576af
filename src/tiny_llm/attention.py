"""Attention, from the basic formula to grouped queries with a causal mask."""

import math

import mlx.core as mx

from .basics import linear, softmax

__all__ = [
    "SimpleMultiHeadAttention",
    "causal_mask",
    "scaled_dot_product_attention_grouped",
    "scaled_dot_product_attention_simple",
]


def scaled_dot_product_attention_simple(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | None = None,
    mask: mx.array | None = None,
) -> mx.array:
    """Compute scaled dot-product attention: softmax(Q K^T * scale + mask) V.

    Shapes: query: N.. x L x D, key and value: N.. x S x D, mask: broadcastable to N.. x L x S -> N.. x L x D.
    N.. is zero or more batch axes. All arrays and the result have the same dtype.
    scale: the factor by which the scores are multiplied. None means 1/sqrt(D); any number, including 0.0, is used as it
    is.
    mask: an array that is added to the scaled scores; -inf hides a key from a query.
    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, arXiv:1706.03762.

    Task: w1d1.1
    """
    raise NotImplementedError(
        "Week 1 Day 1 Task 1: scaled_dot_product_attention_simple is yours to write. "
        "Chapter: Attention and multi-head attention. "
        "Test: ./course test w1d1.1"
    )


class SimpleMultiHeadAttention:
    """Multi-head attention: each of H heads attends with its own D = E / H columns; `wo` mixes the heads' results.

    Shapes: wq, wk, wv: (H*D) x E, wo: E x (H*D); H = num_heads, E = hidden_size.
    Source: Vaswani et al. 2017, section 3.2.2, arXiv:1706.03762.

    Raises:
        ValueError: num_heads does not divide hidden_size, or a weight has the wrong shape.
    """

    def __init__(self, hidden_size: int, num_heads: int, wq: mx.array, wk: mx.array, wv: mx.array, wo: mx.array):
        _check_heads(hidden_size, num_heads)
        for name, weight in {"wq": wq, "wk": wk, "wv": wv, "wo": wo}.items():
            _check_shape(name, weight, (hidden_size, hidden_size))
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.wq, self.wk, self.wv, self.wo = wq, wk, wv, wo

    def __call__(self, query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None = None) -> mx.array:
        """Project the inputs, attend in each head, join the heads, and project the result.

        Shapes: query: N x L x E, key and value: N x S x E, mask: broadcastable to N x H x L x S -> N x L x E.
        Head h owns columns h*D to (h+1)*D - 1 of each projection.

        Task: w1d1.2
        """
        raise NotImplementedError(
            "Week 1 Day 1 Task 2: SimpleMultiHeadAttention.__call__ is yours to write. "
            "Chapter: Attention and multi-head attention. "
            "Test: ./course test w1d1.2"
        )


def causal_mask(L: int, S: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    """Make the additive mask that hides from each query all keys at later positions.

    The queries are at the last L of S positions: query i is at position S - L + i.
    Shapes: -> L x S. Element (i, j) is 0 if query i may see key j, and -inf otherwise.

    Raises:
        ValueError: S is less than L. `_check_lengths` (given) raises this error.

    Task: w1d3.1
    """
    _check_lengths(L, S)
    raise NotImplementedError(
        "Week 1 Day 3 Task 1: causal_mask is yours to write. "
        "Chapter: Causal mask and grouped-query attention. "
        "Test: ./course test w1d3.1"
    )


def scaled_dot_product_attention_grouped(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | None = None,
    mask: mx.array | str | None = None,
) -> mx.array:
    """Compute attention in which H_q / H_kv neighbouring query heads share one key/value head.

    Shapes: query: N.. x H_q x L x D, key and value: N.. x H_kv x S x D, mask: broadcastable to N.. x H_q x L x S
    -> N.. x H_q x L x D. Query head h reads key/value head h // (H_q / H_kv).
    All arrays and the result have the same dtype.
    scale: as in `scaled_dot_product_attention_simple`.
    mask: an additive array, "causal" for `causal_mask(L, S)`, or None.
    Source: Ainslie et al. 2023, "GQA", arXiv:2305.13245.

    Raises:
        ValueError: H_q is not a multiple of H_kv, or the mask is a string other than "causal". `_check_groups` and
            `_check_mask_name` (both given) raise these errors.

    Task: w1d3.2
    """
    _check_groups(query.shape[-3], key.shape[-3])
    _check_mask_name(mask)
    raise NotImplementedError(
        "Week 1 Day 3 Task 2: scaled_dot_product_attention_grouped is yours to write. "
        "Chapter: Causal mask and grouped-query attention. "
        "Test: ./course test w1d3.2"
    )


def _check_heads(hidden_size: int, num_heads: int) -> None:
    if num_heads < 1 or hidden_size % num_heads:
        raise ValueError(f"num_heads must divide hidden_size: expected a divisor of {hidden_size}, got {num_heads}")


def _check_shape(name: str, array: mx.array, expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise ValueError(f"{name}: expected shape {expected}, got {array.shape}")


def _check_lengths(L: int, S: int) -> None:
    if S < L:
        raise ValueError(f"expected no more queries than keys, got L = {L}, S = {S}")


def _check_groups(num_heads: int, num_kv_heads: int) -> None:
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(
            f"query heads must be a multiple of key/value heads: expected a multiple of {num_kv_heads}, got {num_heads}"
        )


def _check_mask_name(mask: mx.array | str | None) -> None:
    if isinstance(mask, str) and mask != "causal":
        raise ValueError(f'mask: expected an array, "causal" or None, got {mask!r}')
