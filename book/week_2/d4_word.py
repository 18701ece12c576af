"""Find one weight among 2-, 4- and 8-bit weights: its word, its bits in the word, its group and its value."""

import mlx.core as mx

from tiny_llm.quantize import dequantize, quantize

GROUP, WEIGHT = 64, 70

mx.random.seed(4)
row = mx.random.normal((1, 256))
print(f"weight {WEIGHT}: {row[0, WEIGHT].item():.4f}\n")
print("bits   word   its bits   group   in hexadecimal   level   weight   as `dequantize`")
for bits in (2, 4, 8):
    packed, scales, biases = quantize(row, GROUP, bits)
    per_word = 32 // bits
    word, shift, group = WEIGHT // per_word, WEIGHT % per_word * bits, WEIGHT // GROUP
    number = packed[0, word].item()
    level = number >> shift & 2**bits - 1
    weight = scales[0, group].item() * level + biases[0, group].item()
    same = abs(weight - dequantize(packed, scales, biases, GROUP, bits)[0, WEIGHT].item()) < 1e-6
    line = f"{bits:4}{word:7}{f'{shift} to {shift + bits - 1}':>11}{group:8}{number:>17x}{level:8}"
    print(f"{line}{weight:9.4f}   {same}")
