"""Compare products rounded to bfloat16 after each step with the products of a kernel that rounds only once."""

import mlx.core as mx

from tiny_llm.kernels.quantized_matvec import quantized_matvec_scalar
from tiny_llm.quantize import dequantize, quantize


def rounded_each_time(x: mx.array, weight: mx.array) -> mx.array:
    """Return the dot product of x with each row of `weight`, and round each step to the dtype of x."""
    total = mx.zeros(weight.shape[0], x.dtype)
    for i in range(x.size):
        total = total + x[i] * weight[:, i]
    return total


def error(got: mx.array, expected: mx.array) -> float:
    """Return the root mean square of the error, divided by the root mean square of the expected numbers."""
    return mx.sqrt(mx.mean((got - expected) ** 2) / mx.mean(expected**2)).item()


mx.random.seed(0)
print("                 a row of ones              random rows, error")
print("    I   each time   the kernel       each time       the kernel")
for I in (64, 256, 1024):
    ones = mx.ones((1, I), mx.bfloat16)
    packed = quantize(ones)
    sums = rounded_each_time(ones[0], dequantize(*packed)).item(), quantized_matvec_scalar(ones, *packed).item()

    x, packed = mx.random.normal((I,)).astype(mx.bfloat16), quantize(mx.random.normal((256, I)).astype(mx.bfloat16))
    levels, scales, biases = packed
    exact = dequantize(levels, scales.astype(mx.float32), biases.astype(mx.float32)) @ x.astype(mx.float32)
    each_time, kernel = rounded_each_time(x, dequantize(*packed)), quantized_matvec_scalar(x, *packed)
    errors = error(each_time, exact), error(kernel, exact)
    print(f"{I:5}{sums[0]:12,.0f}{sums[1]:13,.0f}{errors[0]:16.1%}{errors[1]:17.1%}")
