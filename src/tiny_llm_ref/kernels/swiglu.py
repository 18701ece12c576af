"""SwiGLU's product in one pass over memory."""

import mlx.core as mx

from . import ops
from .extension import kernel

__all__ = ["swiglu"]


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """silu(gate) * up, element by element.

    Shapes: gate and up: N.. x I -> N.. x I. Both are of one dtype, which is kept; the arithmetic is float32. They may
    be halves of one array: nothing is copied.

    Raises:
        ValueError: gate and up differ in shape or dtype, have no axis, or are not of a float dtype.
    """
    _check_alike(gate, up)
    run = kernel("swiglu", "swiglu", "w2d5.3")
    return ops.swiglu(gate, up) if run is None else run([gate, up], [(gate.shape, gate.dtype)])[0]


def _check_alike(gate: mx.array, up: mx.array) -> None:
    if gate.ndim == 0 or not mx.issubdtype(gate.dtype, mx.floating):
        raise ValueError(f"gate: expected rows of a float dtype, got shape {gate.shape} of {gate.dtype}")
    if up.shape != gate.shape or up.dtype != gate.dtype:
        expected = f"shape {gate.shape} of {gate.dtype}"
        raise ValueError(f"up: expected {expected}, as gate has, got shape {up.shape} of {up.dtype}")
