"""Print the fields of a block of four words, with their units and levels. Only the last field is shifted."""

import mlx.core as mx
import numpy as np

from tiny_llm.quantize import quantize

WIDTH, PER_WORD = 4, 8  # lanes, levels per word

weights = mx.random.normal((1, WIDTH * PER_WORD), key=mx.random.key(4))
words = np.array(quantize(weights, group_size=32)[0][0])
print(f"{'j':>2}   " + "  ".join(f"word {i}  " for i in range(WIDTH)) + f"{'unit':>12}   levels")
print("     " + "  ".join(f"{word:08x}" for word in words))
for j in range(PER_WORD):
    last = j == PER_WORD - 1
    field, unit = (words >> 4 * j, 1) if last else (words & 15 << 4 * j, 16**j)
    levels = words >> 4 * j & 15
    assert (field == levels * unit).all()
    print(f"{j:2}   " + "  ".join(f"{word:08x}" for word in field) + f"{unit:12,}   {levels}")

x = np.random.RandomState(0).normal(size=10_000).astype(np.float32)
exact = all((x / np.float32(16**j) * np.float32(16**j) == x).all() for j in range(PER_WORD - 1))
print(f"\nx divided by the units and multiplied again is x: {exact}")
print(f"15 in the highest bits, as a number with a sign: {np.uint32(15 << 28).view(np.int32):,}")
