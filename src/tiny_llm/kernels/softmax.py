"""Softmax along the last axis, the first kernel: three versions for the CPU, each faster than the previous one, and
one for a GPU."""

from pathlib import Path

import mlx.core as mx

from tiny_llm_native import fallback
from tiny_llm_native.extension import kernel
from tiny_llm_native.metal import metal, uses_metal

__all__ = ["softmax", "softmax_metal", "softmax_scalar", "softmax_vector"]

_HERE = Path(__file__).parent
_CPP, _METAL = _HERE / "softmax.cpp", _HERE / "softmax.metal"
_METAL_TASK = "w2d2.5"


def softmax_scalar(x: mx.array) -> mx.array:
    """Compute the softmax of each row, one number at a time, on one thread.

    Shapes: x: N.. x S -> the same shape. The dtype is kept; the arithmetic is float32.

    Raises:
        ValueError: x has no axis, or no float dtype.
    """
    return _run(x, "softmax_scalar", "w2d2.2")


def softmax_vector(x: mx.array) -> mx.array:
    """Compute the same result as `softmax_scalar`, several numbers at a time, on one thread."""
    return _run(x, "softmax_vector", "w2d2.3")


def softmax(x: mx.array) -> mx.array:
    """Compute the same result as `softmax_scalar`, several numbers at a time, on threads that share the rows.

    If the default device is a GPU and you have written the Metal kernel, `softmax_metal` runs instead.
    """
    if uses_metal(_METAL, _METAL_TASK):
        return softmax_metal(x)
    return _run(x, "softmax", "w2d2.3", "w2d2.4")


def softmax_metal(x: mx.array) -> mx.array:
    """Compute the same result as `softmax_scalar` on a GPU, or in metal_host if there is none. A threadgroup computes
    one row of the result."""
    _check_rows(x)
    run = metal(_METAL, "softmax", ["x"], ["out"], _METAL_TASK)
    if x.size == 0:
        return x
    n = x.shape[-1]
    rows, threads = x.reshape(-1, n), min(32 * -(-n // 128), 1024)  # each thread takes 4 numbers at a time
    grid, group = (threads, rows.shape[0], 1), (threads, 1, 1)
    return run([rows], [(rows.shape, x.dtype)], grid, group, [("T", x.dtype)])[0].reshape(x.shape)


def _run(x: mx.array, name: str, *tasks: str) -> mx.array:
    _check_rows(x)
    run = kernel(_CPP, name, *tasks)
    return fallback.softmax(x) if run is None else run([mx.contiguous(x)], [(x.shape, x.dtype)])[0]


def _check_rows(x: mx.array) -> None:
    if x.ndim == 0 or not mx.issubdtype(x.dtype, mx.floating):
        raise ValueError(f"x: expected rows of a float dtype, got shape {x.shape} of {x.dtype}")
