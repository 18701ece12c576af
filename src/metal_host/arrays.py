"""Conversion of MLX arrays into buffers of bytes."""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.lib.array_utils import byte_bounds

from .errors import MetalHostError
from .runner import Buffer
from .signature import Parameter

__all__ = ["array_of", "buffer_of", "filled_output"]

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def array_of(x: Any) -> mx.array:
    """Return an input of a kernel, an array or a number, as an array.

    Raises:
        MetalHostError: the input is complex.
    """
    array = x if isinstance(x, mx.array) else mx.array(x)
    if array.dtype == mx.complex64:
        raise MetalHostError("complex64 is not supported by metal_host")
    return array


def buffer_of(parameter: Parameter, array: mx.array, is_contiguous: bool) -> Buffer:
    """Return the buffer for an input, or for a fact about the input, such as its shape. is_contiguous: whether an input
    that is not row-contiguous is copied."""
    values = _numpy(array)
    copied = 0 if values.flags.c_contiguous or not is_contiguous else values.nbytes
    if is_contiguous:
        values = np.ascontiguousarray(values).reshape(array.shape)
    about: dict[str, Any] = {
        "shape": lambda: np.array(values.shape, np.int32),
        "strides": lambda: np.array(values.strides, np.int64) // values.itemsize,
        "ndim": lambda: np.array([values.ndim], np.int32),
    }
    if parameter.about:
        values, copied = about[parameter.about](), 0
    data, origin, gaps = _memory_of(values)
    return Buffer(parameter.name, parameter.type, data, values.itemsize, origin=origin, gaps=gaps, copied=copied)


def filled_output(shape: Sequence[int], dtype: mx.Dtype, value: float | None) -> tuple[_Bytes, int]:
    """Return an output's bytes and the size of an element in bytes. value: the initial value of each element;
    None means 0."""
    if value is None:
        return np.zeros(math.prod(shape) * dtype.size, np.uint8), dtype.size
    return _bytes(np.ascontiguousarray(_numpy(mx.full(shape, value, dtype)))), dtype.size


def _numpy(array: mx.array) -> "np.ndarray[Any, np.dtype[Any]]":
    """Return a NumPy array that shares the MLX array's memory. bfloat16 elements appear as uint16.

    Raises:
        MetalHostError: the array is a placeholder of mx.compile or mx.vmap.
    """
    try:
        return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array, copy=False)
    except ValueError as error:
        if "function transformations" not in str(error):
            raise
        raise MetalHostError(
            "on the CPU, a kernel computes at once, so it cannot be called within mx.compile (mx.disable_compile() "
            "turns that off) or mx.vmap (write the kernel for one more dimension)"
        ) from None


def _memory_of(values: "np.ndarray[Any, np.dtype[Any]]") -> tuple[_Bytes, int, _Bytes | None]:
    """Return the bytes of an array's memory, from its lowest address to its highest.

    Also return the index of the byte at which element [0, 0, ...] begins, and one flag per byte, 1 for bytes between
    elements. Without gaps between elements, return None in place of the flags.
    """
    if values.flags.c_contiguous or values.size == 0:
        return _bytes(values), 0, None
    low, high = byte_bounds(values)
    start = values.__array_interface__["data"][0]
    gaps = np.ones(high - low, np.uint8)
    elements: Any = np.ndarray(values.shape, f"V{values.itemsize}", gaps, start - low, values.strides)
    elements[...] = bytes(values.itemsize)
    return np.frombuffer(ctypes.string_at(low, high - low), np.uint8), start - low, gaps if gaps.any() else None


def _bytes(values: "np.ndarray[Any, np.dtype[Any]]") -> _Bytes:
    return values.reshape(-1).view(np.uint8) if values.size else np.zeros(0, np.uint8)
