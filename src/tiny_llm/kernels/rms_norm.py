"""RMSNorm in one pass over memory, alone and with the residual sum before it."""

import mlx.core as mx

from . import ops
from .extension import kernel

__all__ = ["add_rms_norm", "rms_norm"]

_TASK = "w2d5.1"


def rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    """RMSNorm over the last axis: x / sqrt(mean(x^2) + eps) * weight.

    Shapes: x: N.. x E, weight: E -> N.. x E. Both are of one dtype, which is kept; the arithmetic is float32.

    Raises:
        ValueError: weight is not of shape E, or the dtypes are not one float dtype.
    """
    _check_weight(x, weight)
    run = kernel("rms_norm", "rms_norm", _TASK)
    return ops.rms_norm(x, weight, eps) if run is None else run([x, weight], [(x.shape, x.dtype)], [eps])[0]


def add_rms_norm(x: mx.array, residual: mx.array, weight: mx.array, eps: float) -> tuple[mx.array, mx.array]:
    """The sum x + residual, and its RMSNorm: a block needs both.

    Shapes: x and residual: N.. x E, weight: E -> N.. x E twice. Otherwise as `rms_norm`.

    Raises:
        ValueError: x and residual differ in shape or dtype; else as `rms_norm`.
    """
    _check_alike("residual", residual, x)
    _check_weight(x, weight)
    run = kernel("rms_norm", "add_rms_norm", _TASK)
    if run is None:
        return ops.add_rms_norm(x, residual, weight, eps)
    total, normed = run([x, residual, weight], [(x.shape, x.dtype)] * 2, [eps])
    return total, normed


def _check_weight(x: mx.array, weight: mx.array) -> None:
    if x.ndim == 0 or not mx.issubdtype(x.dtype, mx.floating):
        raise ValueError(f"x: expected rows of a float dtype, got shape {x.shape} of {x.dtype}")
    if weight.shape != x.shape[-1:] or weight.dtype != x.dtype:
        expected = f"shape {x.shape[-1:]} of {x.dtype}"
        raise ValueError(f"weight: expected {expected}, got shape {weight.shape} of {weight.dtype}")


def _check_alike(name: str, array: mx.array, x: mx.array) -> None:
    if array.shape != x.shape or array.dtype != x.dtype:
        expected = f"shape {x.shape} of {x.dtype}"
        raise ValueError(f"{name}: expected {expected}, as x has, got shape {array.shape} of {array.dtype}")
