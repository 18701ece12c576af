"""Reorder keys and values: without RoPE, attention's output stays the same; with RoPE, the output changes."""

import mlx.core as mx

from tiny_llm.attention import scaled_dot_product_attention_simple as attend
from tiny_llm.positional_encoding import RoPE

mx.random.seed(0)
query = mx.random.normal((1, 1, 1, 8))  # B, L, H, D: the query of the last of six tokens
tokens = mx.random.normal((1, 5, 1, 8))  # the five earlier tokens
order = mx.array([4, 2, 0, 3, 1])
rope = RoPE(8, 16, traditional=True)


def ask(query: mx.array, key: mx.array, value: mx.array) -> list[float]:
    output = attend(*(x.swapaxes(1, 2) for x in (query, key, value)))  # B, H, L, D
    return [round(number, 3) for number in output[0, 0, 0, :4].tolist()]


other = tokens[:, order]
print("five tokens:              ", ask(query, tokens, tokens))
print("in another order:         ", ask(query, other, other))
print("with RoPE, five tokens:   ", ask(rope(query, 5), rope(tokens), tokens))
print("with RoPE, in that order: ", ask(rope(query, 5), rope(other), other))
