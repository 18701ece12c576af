"""Print a linear layer's shapes, check one output by hand, and count parameters with and without biases."""

import mlx.core as mx
import mlx.nn as nn

layer = nn.Linear(3, 2)
layer.weight = mx.array([[1.0, 0.0, 2.0], [0.5, -1.0, 0.0]])  # one row per output
layer.bias = mx.array([10.0, 20.0])

for shape in ((3,), (4, 3), (2, 4, 3), (5, 2, 4, 3)):
    print(f"x {shape!s:13} -> y {layer(mx.ones(shape)).shape}")
print("y =", layer(mx.array([1.0, 2.0, 3.0])).tolist())
print("by hand:", [1 * 1 + 0 * 2 + 2 * 3 + 10, 0.5 * 1 - 1 * 2 + 0 * 3 + 20])


def size(d: int, bias: bool, layers: int) -> int:
    return layers * (d * d + bias * d)


print(f"two layers of 8 x 8: {size(8, True, 2)} parameters with bias, {size(8, False, 2)} without")
print(f"q, k and v of 96 layers of 4,096: {96 * (size(4096, True, 3) - size(4096, False, 3)):,} fewer without")
