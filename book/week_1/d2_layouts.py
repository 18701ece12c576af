"""Print the pairs of both RoPE layouts, and convert one layout into the other by reordering the columns."""

import mlx.core as mx

from tiny_llm.positional_encoding import RoPE

D = 8
neighbours, halves = (RoPE(D, 16, traditional=traditional) for traditional in (True, False))
for name, rope in (("traditional=True", neighbours), ("traditional=False", halves)):
    pairs = set()
    rows = rope(mx.eye(D).reshape(D, 1, 1, D), 1).reshape(D, D)  # before the rotation, row i is 1 in column i only
    for row in rows.tolist():
        pairs.add(tuple(j for j in range(D) if row[j] != 0))
    print(f"{name:17} pairs", *sorted(pairs))

order = mx.array([0, 2, 4, 6, 1, 3, 5, 7])  # from a0 b0 a1 b1 ... to a0 a1 ... b0 b1 ...
mx.random.seed(0)
q, k = mx.random.normal((1, 1, 1, D)), mx.random.normal((1, 1, 1, D))


def score(rope: RoPE, q: mx.array, k: mx.array) -> str:
    return f"{(rope(q, 5) * rope(k, 2)).sum().item():.4f}"


print("score with neighbours:                      ", score(neighbours, q, k))
print("score with halves:                          ", score(halves, q, k))
print("score with halves, in that order of columns:", score(halves, q[..., order], k[..., order]))
