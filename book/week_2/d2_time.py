"""Time three softmax kernels and MLX's own softmax. The ratios of the times matter more than the times."""

from collections.abc import Callable
from time import perf_counter

import mlx.core as mx

from tiny_llm.kernels.softmax import softmax, softmax_scalar, softmax_vector

REPEATS = 15


def best_of(work: Callable[[], mx.array]) -> float:
    """Return the seconds of the fastest run. The first run does not count."""
    mx.eval(work())  # compiles and loads the kernel, starts its threads, fills the caches
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        mx.eval(work())  # without mx.eval, MLX only records the operation
        times.append(perf_counter() - start)
    return min(times)


def mlx_softmax(x: mx.array) -> mx.array:
    return mx.softmax(x, axis=-1, precise=True)


for rows, n in ((16, 513), (16 * 512, 512)):
    x = mx.random.normal((rows, n))
    mx.eval(x)
    print(f"{rows:,} rows of {n} numbers")
    slowest = best_of(lambda x=x: softmax_scalar(x))
    for kernel in (softmax_scalar, softmax_vector, softmax, mlx_softmax):
        seconds = best_of(lambda x=x, kernel=kernel: kernel(x))
        print(f"  {kernel.__name__:16}{1e6 * seconds:10,.0f} µs   {slowest / seconds:5.1f} x")
start = perf_counter()
y = softmax_scalar(x)
print(f"the last one again, not evaluated: {1e6 * (perf_counter() - start):,.0f} µs")
