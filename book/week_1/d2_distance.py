"""Show that the score of a query at position m and a key at position n depends only on m - n."""

import mlx.core as mx

from tiny_llm.positional_encoding import RoPE

mx.random.seed(0)
query, key = mx.random.normal((1, 1, 1, 64)), mx.random.normal((1, 1, 1, 64))
rope = RoPE(64, 1024, base=1000000, traditional=True)
DISTANCES = (0, 1, 2, -2, 10, 100)

print("      distance:", "".join(f"{distance:10}" for distance in DISTANCES))
for position in (100, 101, 500, 1000):
    turned = rope(query, position)
    scores = ((turned * rope(key, position - distance)).sum().item() for distance in DISTANCES)
    print(f"query at {position:4}:  {''.join(f'{score:10.3f}' for score in scores)}")
before, after = (mx.linalg.norm(x).item() for x in (query, rope(query, 999)))
print(f"length of the query before the rotation {before:.4f}, after it {after:.4f}")
