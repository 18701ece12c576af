"""Print how the RMS of a signal changes through 48 layers with a gain of 0.7, 1.0 or 1.4, without and with norms."""

import math

import mlx.core as mx

from tiny_llm.basics import linear
from tiny_llm.layer_norm import RMSNorm

E, LAYERS = 256, 48


def rms(x: mx.array) -> str:
    return f"{mx.sqrt(mx.mean(x * x)).item():10.2g}"


mx.random.seed(0)
norm = RMSNorm(E, mx.ones(E))
print(f"{'RMS after layer':21}{1:10}{12:10}{24:10}{48:10}")
for gain in (0.7, 1.0, 1.4):
    weights = [gain * mx.random.normal((E, E)) / math.sqrt(E) for _ in range(LAYERS)]
    for name, normed in ((f"gain {gain}", lambda x: x), (f"gain {gain}, with norms", norm)):
        x, shown = mx.random.normal((8, E)), []
        for layer, weight in enumerate(weights, start=1):
            x = linear(normed(x), weight)
            if layer in (1, 12, 24, 48):
                shown.append(rms(x))
        print(f"{name:21}" + "".join(shown))
