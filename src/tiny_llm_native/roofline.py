"""Uses kernels to measure how fast this machine reads memory and multiplies. Given."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx

from .extension import Kernel, kernel_without_fallback
from .extension import threads as number_of_threads
from .matmul.arithmetic import NAMES, may_use_tiles

__all__ = ["Speeds", "measure"]

_FILE = Path(__file__).parent / "roofline.cpp"
_FLOATS = 64 * 1024 * 1024  # 256 MiB: more than any cache holds
_ROUNDS = 2_000_000
_REPEATS = 20  # the fastest run counts: anything else that the machine does can only slow a run down


class Speeds(NamedTuple):
    """The speeds of a machine. bandwidth: bytes per second. float32, bfloat16, int8: operations per second, 0 if the
    processor has no instructions for them. bfloat16 includes AMX, if the system permits it. threads: how many threads
    were used."""

    bandwidth: float
    float32: float
    bfloat16: float
    int8: float
    threads: int

    @property
    def exact(self) -> float:
        """The operations per second of the fastest number type that does not round activations to 8 bits."""
        return max(self.float32, self.bfloat16)


def measure(progress: Callable[[str], None] = lambda what: None) -> Speeds:
    """Measure how fast this machine is, in a few seconds. progress: a function that is called with the name of each
    measurement before the measurement begins.

    Raises:
        KernelError: the MLX extension is not built, or kernels are turned off.
    """
    progress("reading memory")
    read, threads = _kernel("read_bytes"), number_of_threads()
    memory = mx.random.uniform(shape=(_FLOATS,))
    mx.eval(memory)
    bandwidth = 4 * _FLOATS / _fastest(lambda: read([memory], [((8 * threads,), mx.float32)]))
    rates = {}
    for name in NAMES:
        progress(f"multiplying {name}")
        has_tiles = name == "bfloat16" and may_use_tiles()
        rates[name] = _rate(_kernel(f"multiply_add_{'tiles' if has_tiles else name}"), threads)
    return Speeds(bandwidth, **rates, threads=threads)


def _rate(run: Kernel, threads: int) -> float:
    def work() -> list[mx.array]:
        return run([], [((threads,), mx.float32), ((1,), mx.float32)], [_ROUNDS])

    operations: Any = work()[1].item()
    return float(operations) * _ROUNDS * threads / _fastest(work)


def _fastest(work: Callable[[], list[mx.array]]) -> float:
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        mx.eval(work())
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _kernel(name: str) -> Kernel:
    return kernel_without_fallback(_FILE, name)
