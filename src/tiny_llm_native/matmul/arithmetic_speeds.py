"""The speed of each number type (arithmetic.py), measured with matrix products as large as a layer's."""

import time
from collections.abc import Sequence

import mlx.core as mx

from ..compiler import CompileError
from ..extension import Kernel, kernel_without_fallback, threads
from .arithmetic import NAMES, PACKED, Choice, Speeds, candidates, flags, remember
from .packed import GROUP, LINES, ROWS

__all__ = ["measure"]

_COLUMNS = 1024
_FEW_OUT, _MANY_OUT = 98304, 3072  # rows of the weights: 57 MB, more than most caches hold; as many rows as in a layer
_SOME, _MANY = 16, 64  # rows of x
_REPEATS = 12  # the fastest run counts: anything else that the machine does can only slow a run down


def measure() -> Speeds:
    """Measure each number type for which this processor has instructions, and remember the speeds. Measuring takes a
    second; compiling the kernels first takes some seconds more.

    Raises:
        CompileError: the kernels do not even compile for float32.
        KernelError: there is no MLX extension to run the kernels.
    """
    speeds, runs = Speeds(threads()), {}
    for name in candidates():
        try:
            runs[name] = kernel_without_fallback(PACKED, "packed_matmul", flags(Choice.always(name)))
        except CompileError as error:
            if name == NAMES[0]:
                raise
            speeds.problems[name] = str(error).partition("\n")[0]
    speeds.few.update(_rates(runs, 1, _FEW_OUT, 4 * _words(_FEW_OUT)))
    for of_rows, rows in ((speeds.some, _SOME), (speeds.many, _MANY)):
        of_rows.update(_rates(runs, rows, _MANY_OUT, 2 * rows * _MANY_OUT * _COLUMNS))
    remember(speeds)
    return speeds


def _rates(runs: dict[str, Kernel], rows: int, out: int, amount: float) -> dict[str, float]:
    """Return each kernel's speed: `amount`, which is the work of one run, divided by the seconds that the kernel's
    fastest run took. The kernels take turns, so that other work on the machine slows all of them alike."""
    levels = mx.random.randint(0, 2**31 - 1, (out, _COLUMNS // 8), mx.uint32)
    scales = mx.full((out, _COLUMNS // GROUP), 0.01, mx.bfloat16)
    shape = (out // ROWS, _COLUMNS // GROUP, (1 + LINES) * ROWS)
    panels = kernel_without_fallback(PACKED, "pack_panels")([levels, scales, scales], [(shape, mx.uint32)])
    inputs = [mx.random.normal((rows, _COLUMNS)), *panels]
    mx.eval(inputs)
    turns = [{name: _seconds(run, inputs, (rows, out)) for name, run in runs.items()} for _ in range(_REPEATS)]
    return {name: amount / min(turn[name] for turn in turns) for name in runs}


def _seconds(run: Kernel, inputs: Sequence[mx.array], shape: tuple[int, int]) -> float:
    start = time.perf_counter()
    mx.eval(run(inputs, [(shape, mx.float32)]))
    return time.perf_counter() - start


def _words(out: int) -> int:
    return out // ROWS * (_COLUMNS // GROUP) * (1 + LINES) * ROWS
