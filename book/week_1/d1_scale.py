"""Show how a softmax's weights change when you add a constant to the scores or divide the scores by a constant."""

import math

import mlx.core as mx

from tiny_llm.basics import softmax

scores = mx.array([10.0, 5.0, 2.0, 1.0])
for name, x in (("alone", scores), ("plus 100", scores + 100), ("divided by 8", scores / 8)):
    weights = softmax(x).tolist()
    ratio = weights[0] / weights[1]
    print(f"{name:12}  {'  '.join(f'{w:.4f}' for w in weights)}   first : second = {ratio:.1f}")

mx.random.seed(0)
print("\nthe largest of the weights of 16 random keys, on average over 1,000 queries")
for D in (1, 64, 1024):
    scores = mx.random.normal((1000, D)) @ mx.random.normal((D, 16))
    plain, scaled = softmax(scores).max(axis=-1), softmax(scores / math.sqrt(D)).max(axis=-1)
    print(f"  D = {D:4}: {plain.mean():.2f}, divided by sqrt(D) {scaled.mean():.2f}")
