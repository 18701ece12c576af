"""Print the first output of a SwiGLU layer with hand-written weights for several inputs (a, b)."""

import mlx.core as mx

from tiny_llm.basics import Linear
from tiny_llm.mlp import SwiGLU

gate = Linear(mx.array([[1.0, 0.0], [-1.0, 0.0]]))  # channel 0 sees a, channel 1 sees -a
up = Linear(mx.array([[0.0, 1.0], [0.0, -1.0]]))  # channel 0 carries b, channel 1 carries -b
down = Linear(mx.array([[1.0, 1.0], [0.0, 0.0]]))  # output 0 adds both channels
layer = SwiGLU(2, 2, gate, up, down)

for a, b in ((2.0, 3.0), (-2.0, 3.0), (0.5, -4.0), (7.0, 0.0), (-6.0, -6.0)):
    print(f"a = {a:4}, b = {b:4}:  {layer(mx.array([a, b]))[0].item():.4f}")
