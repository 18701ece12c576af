"""Attention by hand: softmax, three ways to compute scores, heads, masks, dropout, and a picture of the weights."""

import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np

__all__ = [
    "additive_attention",
    "additive_mask",
    "attention_head",
    "attention_heatmap",
    "dot_product_attention",
    "dropout",
    "look_ahead_mask",
    "multi_head_attention",
    "padding_mask",
    "scaled_dot_product_attention",
    "softmax",
]

_SHADES = " ░▒▓█"


def softmax(x: mx.array, axis: int = -1) -> mx.array:
    """Divide exp(x) by its sum along one axis, for numbers of any size.

    Shapes: x: any shape -> the same shape. The dtype is kept.
    x: -inf becomes 0. A row that contains only -inf has no softmax and becomes NaN. Large numbers, such as 1000, do not
    overflow.

    Task: w0d1.1
    """
    raise NotImplementedError(
        "Week 0 Day 1 Task 1: softmax is yours to write. Chapter: Attention by hand. Test: ./course test w0d1.1"
    )


def dot_product_attention(query: mx.array, key: mx.array, value: mx.array) -> tuple[mx.array, mx.array]:
    """Average the values for each query, weighted by softmax(query . key): attention by dot products.

    Shapes: query: L x D, or D for a single query; key: S x D; value: S x D_v
    -> output L x D_v and weights L x S; for a single query, D_v and S. The dtype is kept.
    Source: Luong et al. 2015, section 3.1, "dot", arXiv:1508.04025.

    Task: w0d1.2
    """
    raise NotImplementedError(
        "Week 0 Day 1 Task 2: dot_product_attention is yours to write. "
        "Chapter: Attention by hand. "
        "Test: ./course test w0d1.2"
    )


def additive_attention(
    query: mx.array, key: mx.array, value: mx.array, w_hidden: mx.array, w_score: mx.array
) -> tuple[mx.array, mx.array]:
    """Average the values for each query, with scores from a small network: w_score . tanh(w_hidden [query; key]).

    Shapes: query: L x D_q, key: S x D_k, value: S x D_v, w_hidden: I x (D_q + D_k), w_score: I
    -> output L x D_v and weights L x S. The dtype is kept. Queries and keys may differ in size.
    [query; key]: a query and a key joined end to end.
    Source: Bahdanau et al. 2014, appendix A.1.2, arXiv:1409.0473.

    Task: w0d1.3
    """
    raise NotImplementedError(
        "Week 0 Day 1 Task 3: additive_attention is yours to write. "
        "Chapter: Attention by hand. "
        "Test: ./course test w0d1.3"
    )


def attention_heatmap(
    weights: mx.array, queries: Sequence[str] | None = None, keys: Sequence[str] | None = None
) -> str:
    """Draw the weights as text: a line per query, with a shade and a number per key. Larger numbers have darker shades.

    Shapes: weights: L x S, none below 0.
    queries, keys: names of the lines and of the columns; by default, the indices of the queries and keys.

    Raises:
        ValueError: weights is not a matrix, or the number of names is not the number of lines or columns.
    """
    _check_names(weights, queries, keys)
    L, S = weights.shape
    lines = [str(name) for name in queries or range(L)]
    columns = [str(name) for name in keys or range(S)]
    left, width = max(map(len, lines)), max(5, *map(len, columns))
    table = [" " * left + "".join(f" {name:>{width}}" for name in columns)]
    numbers = np.array(weights.astype(mx.float32))
    step = (len(_SHADES) - 1) / (numbers.max() or 1)
    for name, row in zip(lines, numbers, strict=True):
        table.append(f"{name:>{left}}" + "".join(f" {_SHADES[round(x * step)]}{x:{width - 1}.2f}" for x in row))
    return "\n".join(table)


def scaled_dot_product_attention(
    query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """Compute attention with scores divided by sqrt(d_k), so that the scores' size does not depend on d_k.

    Shapes: query: N.. x L x d_k, key: N.. x S x d_k, value: N.. x S x d_v, mask: broadcastable to N.. x L x S
    -> output N.. x L x d_v and weights N.. x L x S. The dtype is kept.
    mask: an array of the query's dtype, which is added to the scaled scores.
    Source: Vaswani et al. 2017, section 3.2.1, arXiv:1706.03762.

    Task: w0d2.1
    """
    raise NotImplementedError(
        "Week 0 Day 2 Task 1: scaled_dot_product_attention is yours to write. "
        "Chapter: Why divide by the square root of d. "
        "Test: ./course test w0d2.1"
    )


def attention_head(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    w_query: mx.array,
    w_key: mx.array,
    w_value: mx.array,
    mask: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """Compute one head: project queries, keys and values, each with a matrix of its own, and attend.

    Shapes: query: N.. x L x E, key and value: N.. x S x E, w_query and w_key: d_k x E, w_value: d_v x E,
    mask: broadcastable to N.. x L x S -> output N.. x L x d_v and weights N.. x L x S. The dtype is kept.
    Source: Vaswani et al. 2017, section 3.2.2, arXiv:1706.03762.

    Task: w0d2.2
    """
    raise NotImplementedError(
        "Week 0 Day 2 Task 2: attention_head is yours to write. "
        "Chapter: Why divide by the square root of d. "
        "Test: ./course test w0d2.2"
    )


def multi_head_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    heads: Sequence[tuple[mx.array, mx.array, mx.array]],
    w_output: mx.array,
    mask: mx.array | None = None,
) -> mx.array:
    """Compute all heads, one after the other, join their outputs end to end, and project the joined outputs.

    Shapes: query: B x L x E, key and value: B x S x E, w_output: E x (sum of the heads' d_v), mask: broadcastable to
    B x H x L x S -> B x L x E. The dtype is kept.
    heads: for each head, the arguments w_query, w_key and w_value of `attention_head`. H is the number of heads.
    mask: an array of the query's dtype. Head h uses index h of the mask's third axis from the end. If that axis has
    size 1 or is missing, all heads use the same mask.
    Source: Vaswani et al. 2017, section 3.2.2, arXiv:1706.03762.

    Task: w0d2.3
    """
    raise NotImplementedError(
        "Week 0 Day 2 Task 3: multi_head_attention is yours to write. "
        "Chapter: Why divide by the square root of d. "
        "Test: ./course test w0d2.3"
    )


def padding_mask(lengths: Sequence[int], S: int) -> mx.array:
    """Mark the keys that are words, in sentences that are padded at their ends: 1 for a word, 0 for the padding.

    Shapes: lengths: B numbers from 0 to S -> B x 1 x 1 x S, float32: the same mask for each head and each query.

    Task: w0d2.4
    """
    raise NotImplementedError(
        "Week 0 Day 2 Task 4: padding_mask is yours to write. "
        "Chapter: Why divide by the square root of d. "
        "Test: ./course test w0d2.4"
    )


def look_ahead_mask(L: int) -> mx.array:
    """Mark the keys that a query may see if it must not look ahead: 1 up to the query's own position, 0 for later keys.

    Shapes: -> L x L, float32.

    Task: w0d2.4
    """
    raise NotImplementedError(
        "Week 0 Day 2 Task 4: look_ahead_mask is yours to write. "
        "Chapter: Why divide by the square root of d. "
        "Test: ./course test w0d2.4"
    )


def additive_mask(keep: mx.array, hidden: float = -math.inf, dtype: mx.Dtype = mx.float32) -> mx.array:
    """Turn a mask of 1 and 0 into a mask to add to scores: 0 where `keep` is 1, and `hidden` where `keep` is 0.

    Shapes: keep: any shape -> the same shape. The result has the dtype `dtype`.
    hidden: -inf, or a large negative number such as -1e9. With -1e9, a query that sees no key at all gets an average
    of values instead of NaN. In float16, -1e9 overflows to -inf.

    Task: w0d2.4
    """
    raise NotImplementedError(
        "Week 0 Day 2 Task 4: additive_mask is yours to write. "
        "Chapter: Why divide by the square root of d. "
        "Test: ./course test w0d2.4"
    )


def dropout(x: mx.array, rate: float, training: bool = False) -> mx.array:
    """In training, set each number to 0 with probability `rate`, and divide the other numbers by 1 - rate.

    At inference, return x unchanged.
    Shapes: x: any shape -> the same shape. The dtype is kept.
    rate: a probability, from 0 to less than 1. Each number is set to 0 or kept independently of all other numbers.
    Source: Srivastava et al. 2014, "Dropout", JMLR 15. The paper scales at inference, frameworks scale in training.

    Raises:
        ValueError: rate is out of range. `_check_rate` (given) raises this error.

    Task: w0d2.5
    """
    _check_rate(rate)
    raise NotImplementedError(
        "Week 0 Day 2 Task 5: dropout is yours to write. "
        "Chapter: Why divide by the square root of d. "
        "Test: ./course test w0d2.5"
    )


def _check_names(weights: mx.array, queries: Sequence[str] | None, keys: Sequence[str] | None) -> None:
    if weights.ndim != 2:
        raise ValueError(f"weights: expected a matrix, L x S, got shape {weights.shape}")
    for names, size, what in ((queries, weights.shape[0], "queries"), (keys, weights.shape[1], "keys")):
        if names is not None and len(names) != size:
            raise ValueError(f"{what}: expected {size} names, got {len(names)}")


def _check_rate(rate: float) -> None:
    if not 0 <= rate < 1:
        raise ValueError(f"rate: expected 0 or more and less than 1, got {rate}")
