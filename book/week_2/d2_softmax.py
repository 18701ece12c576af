"""Compare three softmax kernels with the formula for several row lengths, and show when threads share the work."""

import mlx.core as mx
import numpy as np

from tiny_llm.kernels.softmax import softmax, softmax_scalar, softmax_vector
from tiny_llm_native.extension import set_threads, shared_parts

KERNELS = (softmax_scalar, softmax_vector, softmax)
set_threads(2)


def formula(x: mx.array) -> np.ndarray:
    """Compute softmax in float64."""
    numbers = np.array(x.astype(mx.float32), np.float64)
    e = np.exp(numbers - numbers.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


mx.random.seed(0)
print("   n   16 lanes   rest   all three right: float32, bfloat16")
for n in (1, 15, 16, 19, 513):
    close = []
    for dtype, tolerance in ((mx.float32, 1e-6), (mx.bfloat16, 4e-3)):
        x = (3 * mx.random.normal((4, n))).astype(dtype)
        results = [np.array(kernel(x).astype(mx.float32)) for kernel in KERNELS]
        close.append(all(np.allclose(result, formula(x), rtol=tolerance, atol=1e-7) for result in results))
    print(f"{n:4}{n // 16:7} x 16{n % 16:7}   {close[0]!s:>24},     {close[1]}")

print("\nlarge scores: ", softmax(mx.array([1000.0, 1000.0, 999.0])))
print("hidden keys:  ", softmax(mx.array([1.0, -mx.inf, 1.0])))

for rows in (4, 4000):
    before = shared_parts()
    y = softmax(mx.random.normal((rows, 513)))
    called = shared_parts()
    mx.eval(y)
    print(f"{rows:4} rows shared out: by the call {called > before}, by mx.eval {shared_parts() > called}")
