"""Time the kernels of days 4 and 6 for several numbers of rows, to find where day 6's kernel becomes faster."""

from collections.abc import Callable
from time import perf_counter

import mlx.core as mx

from tiny_llm.kernels.quantized_matmul import quantized_matmul
from tiny_llm.kernels.quantized_matvec import quantized_matvec

REPEATS = 10


def best_of(work: Callable[[], mx.array]) -> float:
    mx.eval(work())
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        mx.eval(work())
        times.append(perf_counter() - start)
    return min(times)


O, I = 3072, 1024
w = mx.quantize(mx.random.normal((O, I)), 64, 4)
mx.eval(w)
print("rows    day 4, µs    day 6, µs   GFLOP/s of the faster one")
for M in (1, 2, 4, 8, 9, 16, 17, 32, 128):
    x = mx.random.normal((M, I))
    mx.eval(x)
    vector = best_of(lambda x=x: quantized_matvec(x, *w))
    tiles = best_of(lambda x=x: quantized_matmul(x, *w))
    print(f"{M:4}{1e6 * vector:13,.0f}{1e6 * tiles:13,.0f}{2 * M * O * I / min(vector, tiles) / 1e9:13,.0f}")
