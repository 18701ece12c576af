"""SwiGLU's product in one pass over memory, on the CPU and on a GPU."""

from pathlib import Path

import mlx.core as mx

from tiny_llm_native import fallback
from tiny_llm_native.extension import kernel
from tiny_llm_native.metal import metal, uses_metal

__all__ = ["swiglu", "swiglu_metal"]

_HERE = Path(__file__).parent
_CPP, _METAL = _HERE / "swiglu.cpp", _HERE / "swiglu.metal"
_METAL_TASK = "w2d5.6"


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """Compute silu(gate) * up, element by element.

    Shapes: gate and up: N.. x I -> N.. x I. gate, up and the result have the same dtype; the arithmetic is float32.
    If gate and up are halves of one array, these halves are not copied.
    If the default device is a GPU and you have written the Metal kernel, `swiglu_metal` runs instead.

    Raises:
        ValueError: gate and up differ in shape or dtype, have no axis, or are not of a float dtype.
    """
    if uses_metal(_METAL, _METAL_TASK):
        return swiglu_metal(gate, up)
    _check_alike(gate, up)
    run = kernel(_CPP, "swiglu", "w2d5.3")
    return fallback.swiglu(gate, up) if run is None else run([gate, up], [(gate.shape, gate.dtype)])[0]


def swiglu_metal(gate: mx.array, up: mx.array) -> mx.array:
    """Compute the same result as `swiglu` on a GPU, or in metal_host if there is none. A thread computes four numbers.

    If gate and up are halves of one array, the two halves are copied first.
    """
    _check_alike(gate, up)
    run = metal(_METAL, "swiglu", ["gate", "up"], ["out"], _METAL_TASK)
    n = gate.size
    if n == 0:
        return gate
    grid, group = (-(-n // 4), 1, 1), (256, 1, 1)
    inputs = [gate.reshape(1, n), up.reshape(1, n)]
    return run(inputs, [((1, n), gate.dtype)], grid, group, [("T", gate.dtype)])[0].reshape(gate.shape)


def _check_alike(gate: mx.array, up: mx.array) -> None:
    if gate.ndim == 0 or not mx.issubdtype(gate.dtype, mx.floating):
        raise ValueError(f"gate: expected rows of a float dtype, got shape {gate.shape} of {gate.dtype}")
    if up.shape != gate.shape or up.dtype != gate.dtype:
        expected = f"shape {gate.shape} of {gate.dtype}"
        raise ValueError(f"up: expected {expected}, as gate has, got shape {up.shape} of {up.dtype}")
