"""Print the speed of each pair in a head of size 8, and the point to which each pair rotates (1, 0)."""

import math

import mlx.core as mx

from tiny_llm.positional_encoding import RoPE

D, BASE = 8, 10000
for i in range(D // 2):
    frequency = BASE ** (-2 * i / D)
    print(f"pair {i}: {frequency:g} radians per position, once around in {2 * math.pi / frequency:,.1f} positions")

rope = RoPE(D, 1024, BASE, traditional=True)
x = mx.array([1.0, 0.0] * 4).reshape(1, 1, 1, D)  # every pair is (1, 0)
print("\nposition    pair 0          pair 1          pair 2          pair 3")
for position in (0, 1, 2, 3, 10, 100, 1000):
    turned = rope(x, position).reshape(4, 2).tolist()
    print(f"{position:8}  {'  '.join(f'({a:5.2f}, {b:5.2f})' for a, b in turned)}")
