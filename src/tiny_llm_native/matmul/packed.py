"""Weights in the order in which a processor reads them fastest, and products with them. Given."""

from pathlib import Path

import mlx.core as mx

from ..extension import Kernel, kernel_without_fallback
from .arithmetic import flags

__all__ = [
    "GROUP",
    "LINES",
    "ROWS",
    "UNQUANTISED_WORDS",
    "can_pack",
    "can_pack_unquantised",
    "pack",
    "pack_unquantised",
    "packed_matmul",
]

_FILE = Path(__file__).parent / "packed.cpp"
ROWS, GROUP, LINES = 16, 64, 8
UNQUANTISED_WORDS = GROUP * ROWS // 2  # of a group, if the weights are not quantised


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


def can_pack_unquantised(weight: mx.array) -> bool:
    """Tell whether `pack_unquantised` takes a matrix: numbers that bfloat16 represents exactly, a multiple of 16 rows,
    and a multiple of 64 columns. Shape: weight: O x I."""
    rows, columns = weight.shape
    if rows % ROWS or columns % GROUP:
        return False
    return weight.dtype == mx.bfloat16 or bool(mx.array_equal(weight.astype(mx.bfloat16).astype(weight.dtype), weight))


def pack_unquantised(weight: mx.array) -> mx.array:
    """Return the panels of a weight for which `can_pack_unquantised` is true, for the operations in block.py.

    Shapes: weight: O x I -> O/16 x I/64 x 512, uint32: two numbers in bfloat16 per word.
    """
    rows, columns = weight.shape
    panels = weight.astype(mx.bfloat16).reshape(rows // ROWS, ROWS, columns).swapaxes(1, 2)
    return mx.contiguous(panels).view(mx.uint32).reshape(rows // ROWS, columns // GROUP, UNQUANTISED_WORDS)


def packed_matmul(x: mx.array, panels: mx.array) -> mx.array:
    """Return x W^T, with the panels of a quantised W.

    Shapes: x: N.. x I, panels: O/16 x I/64 x 144 -> N.. x O. The dtype of x is kept.
    """
    run = _kernel("packed_matmul")
    return run([mx.contiguous(x), panels], [((*x.shape[:-1], panels.shape[0] * ROWS), x.dtype)])[0]


def _kernel(name: str) -> Kernel:
    return kernel_without_fallback(_FILE, name, flags())
