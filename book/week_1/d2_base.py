"""Compare two RoPE bases: how many positions a pair needs per turn, and how a score depends on the distance."""

import math

import mlx.core as mx

from tiny_llm.positional_encoding import RoPE

D, CONTEXT = 128, 32768
PAIRS = (0, 16, 32, 48, 63)
print("positions for one turn of the pairs 0, 16, 32, 48 and 63 of 64")
for base in (10_000, 1_000_000):
    turns = [2 * math.pi * base ** (2 * i / D) for i in range(D // 2)]
    slow = sum(turn > CONTEXT for turn in turns)
    print(f"base {base:9,}", *(f"{turns[i]:10,.0f}" for i in PAIRS), f"  {slow} over {CONTEXT:,}")

print("\nq and k the same vector of ones: their score, by distance, as a part of that at distance 0")
distances = (1, 10, 100, 1000, 10000, 30000)
print("distance      ", *(f"{distance:9,}" for distance in distances), sep="")
ones = mx.ones((1, 1, 1, D))
for base in (10_000, 1_000_000):
    rope = RoPE(D, CONTEXT, base, traditional=True)
    print(f"base {base:9,}", *(f"{(rope(ones, d) * ones).sum().item() / D:9.2f}" for d in distances), sep="")
