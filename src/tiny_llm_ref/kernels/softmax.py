"""Softmax along the last axis: the first kernel, in three steps of speed."""

import mlx.core as mx

from . import ops
from .extension import kernel

__all__ = ["softmax", "softmax_scalar", "softmax_vector"]


def softmax_scalar(x: mx.array) -> mx.array:
    """One number at a time, on one thread.

    Shapes: x: N.. x S -> the same. The dtype is kept; the arithmetic is float32.

    Raises:
        ValueError: x has no axis, or is not of a float dtype.
    """
    return _run(x, "softmax_scalar", "w2d2.2")


def softmax_vector(x: mx.array) -> mx.array:
    """Several numbers at a time, on one thread. Otherwise as `softmax_scalar`."""
    return _run(x, "softmax_vector", "w2d2.3")


def softmax(x: mx.array) -> mx.array:
    """Several numbers at a time, and rows shared out among threads. Otherwise as `softmax_scalar`."""
    return _run(x, "softmax", "w2d2.3", "w2d2.4")


def _run(x: mx.array, name: str, *tasks: str) -> mx.array:
    _check_rows(x)
    run = kernel("softmax", name, *tasks)
    return ops.softmax(x) if run is None else run([mx.contiguous(x)], [(x.shape, x.dtype)])[0]


def _check_rows(x: mx.array) -> None:
    if x.ndim == 0 or not mx.issubdtype(x.dtype, mx.floating):
        raise ValueError(f"x: expected rows of a float dtype, got shape {x.shape} of {x.dtype}")
