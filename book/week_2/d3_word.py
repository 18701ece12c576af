"""Quantise 32 numbers, and print the first eight with their levels, their dequantised values and their word."""

import mlx.core as mx
import numpy as np

from tiny_llm.quantize import dequantize, quantize

first = [0.7, -0.31, 0.02, 0.0, -0.8, 0.45, -0.09, 0.33]
weight = mx.array([[*first, *np.linspace(-0.75, 0.65, 24)]])
packed, scales, biases = quantize(weight, group_size=32, bits=4)
back = dequantize(packed, scales, biases, group_size=32, bits=4)

scale, bias = scales.item(), biases.item()
levels = mx.round((back - bias) / scale).astype(mx.int32)  # exact, because each number in `back` is on a level
print(f"32 numbers, {packed.shape[1]} words, scale {scale:.4f}, bias {bias:.4f}\n")
print("number", *(f"{number:7.2f}" for number in weight[0, :8].tolist()))
print("level ", *(f"{level:7}" for level in levels[0, :8].tolist()))
print("back  ", *(f"{number:7.2f}" for number in back[0, :8].tolist()))
print(f"\nthe first word, in hexadecimal: {packed[0, 0].item():08x}")
