"""Check whether results are equal bit for bit with fewer rows of x, with day 4's kernel, and on a single thread."""

import mlx.core as mx

from tiny_llm.kernels.quantized_matmul import quantized_matmul
from tiny_llm.kernels.quantized_matvec import quantized_matvec
from tiny_llm.quantize import quantize
from tiny_llm_native.extension import set_threads

mx.random.seed(6)
w = quantize(mx.random.normal((100, 1024)))
x = mx.random.normal((41, 1024))
set_threads(2)
together = quantized_matmul(x, *w)


def compared(y: mx.array) -> str:
    """Compare y with the first rows of `together`, and return the result as text."""
    distance = mx.abs(y - together[: len(y)]).max() / mx.abs(together).max()
    return f"equal bits: {mx.array_equal(y, together[: len(y)]).item()!s:5}   equal to 1e-5: {distance.item() < 1e-5}"


for M in (1, 8, 9, 40):
    print(f"{M:2} of 41 rows, today's kernel  ", compared(quantized_matmul(x[:M], *w)))
print("         8 rows, day 4's kernel  ", compared(quantized_matvec(x[:8], *w)))
set_threads(1)
print("   all rows, on a single thread  ", compared(quantized_matmul(x, *w)))
