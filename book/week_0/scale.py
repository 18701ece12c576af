"""Print the variance of the dot products of vectors of size d, before and after division by sqrt(d)."""

import math

import mlx.core as mx

PAIRS = 20_000


def spread(q: mx.array, k: mx.array) -> str:
    """Return the variance of q.k over all pairs, before and after division by sqrt(d), as text."""
    d = q.shape[-1]
    dots = (q * k).sum(axis=-1)
    return f"{dots.var().item():8.2f}   after division {(dots / math.sqrt(d)).var().item():.3f}"


mx.random.seed(0)
print("numbers of variance 1")
for d in (8, 64, 512):
    q, k = mx.random.normal((PAIRS, d)), mx.random.normal((PAIRS, d))
    print(f"  d = {d:3}: variance of q.k {spread(q, k)}")

print("the same, after two freshly initialised linear layers")
for d in (8, 64, 512):
    bound = math.sqrt(6 / ((1 + 5) * d))
    w_query, w_key = mx.random.uniform(-bound, bound, (d, d)), mx.random.uniform(-bound, bound, (d, d))
    q, k = mx.random.normal((PAIRS, d)) @ w_query.T, mx.random.normal((PAIRS, d)) @ w_key.T
    print(f"  d = {d:3}: variance of q.k {spread(q, k)}   (weights within {bound:.4f})")
