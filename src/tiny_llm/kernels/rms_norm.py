"""RMSNorm in one pass over memory, alone or fused with the residual sum before it, on the CPU and on a GPU."""

import math
from pathlib import Path

import mlx.core as mx

from tiny_llm_native import fallback
from tiny_llm_native.extension import kernel
from tiny_llm_native.metal import metal, uses_metal

__all__ = ["add_rms_norm", "add_rms_norm_metal", "rms_norm", "rms_norm_metal"]

_HERE = Path(__file__).parent
_CPP, _METAL = _HERE / "rms_norm.cpp", _HERE / "rms_norm.metal"
_TASK, _METAL_TASK = "w2d5.1", "w2d5.4"


def rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    """Compute RMSNorm over the last axis: x / sqrt(mean(x^2) + eps) * weight.

    Shapes: x: N.. x E, weight: E -> N.. x E. x, weight and the result have the same dtype; the arithmetic is float32.

    If the default device is a GPU and you have written the Metal kernel, `rms_norm_metal` runs instead.

    Raises:
        ValueError: the shape of weight is not (E,), or x and weight do not have the same float dtype.
    """
    if uses_metal(_METAL, _METAL_TASK):
        return rms_norm_metal(x, weight, eps)
    _check_weight(x, weight)
    run = kernel(_CPP, "rms_norm", _TASK)
    return fallback.rms_norm(x, weight, eps) if run is None else run([x, weight], [(x.shape, x.dtype)], [eps])[0]


def add_rms_norm(x: mx.array, residual: mx.array, weight: mx.array, eps: float) -> tuple[mx.array, mx.array]:
    """Return the sum x + residual, and the RMSNorm of this sum. A transformer block needs both results.

    Shapes: x and residual: N.. x E, weight: E -> two arrays of N.. x E. Everything else is as in `rms_norm`.

    If the default device is a GPU and you have written the Metal kernel, `add_rms_norm_metal` runs instead.

    Raises:
        ValueError: x and residual differ in shape or dtype, or x and weight are not as in `rms_norm`.
    """
    if uses_metal(_METAL, _METAL_TASK):
        return add_rms_norm_metal(x, residual, weight, eps)
    _check_alike("residual", residual, x)
    _check_weight(x, weight)
    run = kernel(_CPP, "add_rms_norm", _TASK)
    if run is None:
        return fallback.add_rms_norm(x, residual, weight, eps)
    total, normed = run([x, residual, weight], [(x.shape, x.dtype)] * 2, [eps])
    return total, normed


def rms_norm_metal(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    """Compute `rms_norm` on a GPU, or in metal_host if there is none. A threadgroup computes one row of the result."""
    _check_weight(x, weight)
    return _run_metal("rms_norm", {"x": x}, weight, eps, ["out"])[0]


def add_rms_norm_metal(x: mx.array, residual: mx.array, weight: mx.array, eps: float) -> tuple[mx.array, mx.array]:
    """Compute the same results as `add_rms_norm` on a GPU, or in metal_host if there is none. A threadgroup computes
    one row of each result."""
    _check_alike("residual", residual, x)
    _check_weight(x, weight)
    total, normed = _run_metal("add_rms_norm", {"x": x, "residual": residual}, weight, eps, ["total", "out"])
    return total, normed


def _run_metal(
    name: str, arrays: dict[str, mx.array], weight: mx.array, eps: float, outputs: list[str]
) -> list[mx.array]:
    run = metal(_METAL, name, [*arrays, "weight", "eps"], outputs, _METAL_TASK)
    shape, n = arrays["x"].shape, weight.size
    rows = math.prod(shape[:-1])
    if rows * n == 0:
        return [mx.zeros(shape, weight.dtype)] * len(outputs)
    threads = min(32 * -(-n // 128), 1024)  # per threadgroup; each thread takes 4 numbers at a time
    inputs: list[mx.array | float] = [*(x.reshape(rows, n) for x in arrays.values()), weight.reshape(1, n), eps]
    results = [((rows, n), weight.dtype)] * len(outputs)
    found = run(inputs, results, (threads, rows, 1), (threads, 1, 1), [("T", weight.dtype)])
    return [result.reshape(shape) for result in found]


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
