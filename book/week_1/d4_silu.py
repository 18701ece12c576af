"""Compare SiLU with the sigmoid and with ReLU."""

import mlx.core as mx
import mlx.nn as nn

from tiny_llm.basics import silu

x = mx.array([-20.0, -5.0, -1.278, -1.0, 0.0, 1.0, 5.0, 20.0])
for name, function in (("x", lambda x: x), ("sigmoid", mx.sigmoid), ("ReLU", nn.relu), ("SiLU", silu)):
    print(f"{name:8}" + " ".join(f"{number:8.4f}" for number in function(x).tolist()))
