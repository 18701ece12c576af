"""Compute attention over ten vectors on a circle, first as they are, then with one vector five times as long."""

import math

import mlx.core as mx

from tiny_llm.foundations import attention_heatmap, dot_product_attention


def direction(degrees: float) -> mx.array:
    return mx.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])


vectors = mx.stack([direction(36 * i) for i in range(10)])  # 10, 2
query = direction(45)


def show(name: str, vectors: mx.array) -> None:
    output, weights = dot_product_attention(query, vectors, vectors)
    print(f"{name}: output {output[0].item():.6f}, {output[1].item():.6f}")
    print("  weights", " ".join(f"{weight:.4f}" for weight in weights.tolist()))


show("ten vectors of length 1", vectors)
for i in (3, 4):
    longer = mx.where(mx.arange(10)[:, None] == i, 5 * vectors, vectors)
    show(f"vector {i} five times as long", longer)

queries = mx.stack([direction(degrees) for degrees in (0, 45, 180)])
output, weights = dot_product_attention(queries, vectors, vectors)
print(f"three queries: output {output.shape}, weights {weights.shape}")
print(attention_heatmap(weights, ["0", "45", "180"], [f"{36 * i}" for i in range(10)]))
