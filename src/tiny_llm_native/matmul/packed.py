"""Products with 4-bit weights in the order in which a processor reads them fastest. Given."""

from pathlib import Path

import mlx.core as mx

from ..extension import Kernel, kernel_without_fallback
from .arithmetic import flags

__all__ = ["GROUP", "LINES", "ROWS", "can_pack", "pack", "packed_matmul"]

_FILE = Path(__file__).parent / "packed.cpp"
ROWS, GROUP, LINES = 16, 64, 8


def can_pack(packed: mx.array, scales: mx.array, group_size: int, bits: int) -> bool:
    """Tell whether `pack` takes a matrix: 4-bit weights in groups of 64, bfloat16 scales, and a multiple of 16 rows."""
    return bits == 4 and group_size == GROUP and packed.shape[0] % ROWS == 0 and scales.dtype == mx.bfloat16


def pack(packed: mx.array, scales: mx.array, biases: mx.array) -> mx.array:
    """Return the panels of a weight for which `can_pack` is true.

    Shapes: packed: O x I/8, scales and biases: O x I/64 -> O/16 x I/64 x 144, uint32.
    """
    run = _kernel("pack_panels")
    shape = (packed.shape[0] // ROWS, scales.shape[1], ROWS + LINES * ROWS)
    return run([mx.contiguous(x) for x in (packed, scales, biases)], [(shape, mx.uint32)])[0]


def packed_matmul(x: mx.array, panels: mx.array) -> mx.array:
    """Return x W^T, with W in panels.

    Shapes: x: N.. x I, panels: O/16 x I/64 x 144 -> N.. x O. The dtype of x is kept.
    """
    run = _kernel("packed_matmul")
    return run([mx.contiguous(x), panels], [((*x.shape[:-1], panels.shape[0] * ROWS), x.dtype)])[0]


def _kernel(name: str) -> Kernel:
    return kernel_without_fallback(_FILE, name, flags())
