"""Print the errors of weights, and of products over I inputs, with weights rounded to the nearest level or down."""

import mlx.core as mx

from tiny_llm.quantize import dequantize, quantize


def cut_off(weight: mx.array) -> mx.array:
    """Round each weight down to a level of its group, instead of to the nearest level."""
    groups = mx.unflatten(weight, -1, (-1, 64))
    low = groups.min(axis=-1, keepdims=True)
    step = (groups.max(axis=-1, keepdims=True) - low) / 15
    return (mx.floor((groups - low) / step) * step + low).flatten(-2)


def error(got: mx.array, expected: mx.array) -> float:
    """Return the root mean square of the error, divided by the root mean square of the expected numbers."""
    return mx.sqrt(mx.mean((got - expected) ** 2) / mx.mean(expected**2)).item()


mx.random.seed(2)
print("                rounded            cut off")
print("      I   weights  product   weights  product")
for I in (64, 1024, 16384):
    weight, x = mx.random.normal((256, I)), mx.random.normal((I, 16)) + 0.5
    line = f"{I:7}"
    for rounded in (dequantize(*quantize(weight)), cut_off(weight)):
        line += f"{error(rounded, weight):10.1%}{error(rounded @ x, weight @ x):9.1%}"
    print(line)
