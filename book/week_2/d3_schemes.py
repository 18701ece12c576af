"""Compare three ways to place 16 levels, for three kinds of numbers: the error, and how far zeros move."""

from collections.abc import Callable

import mlx.core as mx

from tiny_llm.quantize import dequantize, quantize


def rounded(weight: mx.array, scale: mx.array, bias: mx.array) -> mx.array:
    return scale * mx.clip(mx.round((weight - bias) / scale), 0, 15) + bias


def symmetric(weight: mx.array) -> mx.array:
    """Round to 0 and to seven levels on either side of 0. The lowest of the 16 levels is not used."""
    scale = mx.abs(weight).max(axis=-1, keepdims=True) / 7
    return rounded(weight, scale, -8 * scale)


def minimum_and_maximum(weight: mx.array) -> mx.array:
    low, high = weight.min(axis=-1, keepdims=True), weight.max(axis=-1, keepdims=True)
    return rounded(weight, (high - low) / 15, low)


def with_a_level_for_zero(weight: mx.array) -> mx.array:
    return dequantize(*quantize(weight))


SCHEMES: dict[str, Callable[[mx.array], mx.array]] = {
    "symmetric": symmetric,
    "minimum and maximum": minimum_and_maximum,
    "quantize": with_a_level_for_zero,
}

mx.random.seed(0)
normal = mx.random.normal((4096, 64))  # 4,096 groups of 64 numbers
sparse = normal * (mx.random.uniform(shape=normal.shape) < 0.5)
KINDS = {"normal": normal, "on one side": normal + 2, "half are 0": sparse}

print(f"{'error':20}" + "".join(f"{kind:>14}" for kind in KINDS) + "    0 moves by")
for name, scheme in SCHEMES.items():
    line = f"{name:20}"
    for weight in KINDS.values():
        error = mx.sqrt(mx.mean((scheme(weight) - weight) ** 2) / mx.var(weight))
        line += f"{error.item():14.1%}"
    zeros = sparse == 0
    moved = mx.sum(mx.abs(scheme(sparse)) * zeros) / mx.sum(zeros)
    print(line + f"{moved.item():14.3f}")
