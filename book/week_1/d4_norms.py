"""Compare RMSNorm and LayerNorm on the same vectors, with all weights set to 1."""

import mlx.core as mx
import mlx.nn as nn

from tiny_llm.layer_norm import RMSNorm

rms_norm, layer_norm = RMSNorm(4, mx.ones(4), eps=1e-9), nn.LayerNorm(4, eps=1e-9)


def row(x: mx.array) -> str:
    return " ".join(f"{number:5.2f}" for number in x.tolist())


x = mx.array([1.0, 2.0, 3.0, 6.0])
for name, vector in (("x", x), ("10 x", 10 * x), ("-x", -x), ("x + 10", x + 10)):
    numbers = " ".join(f"{number:3.0f}" for number in vector.tolist())
    print(f"{name:6} {numbers}   RMSNorm {row(rms_norm(vector))}   LayerNorm {row(layer_norm(vector))}")
