"""A quantised matrix times a few vectors: three versions for the CPU, each faster than the previous one, and one for a
GPU. A model needs this product for each new token."""

import math
from pathlib import Path

import mlx.core as mx

from tiny_llm_native import fallback
from tiny_llm_native.extension import kernel
from tiny_llm_native.metal import metal, uses_metal

__all__ = [
    "check_product",
    "product_metal",
    "quantized_matvec",
    "quantized_matvec_metal",
    "quantized_matvec_scalar",
    "quantized_matvec_vector",
]

_HERE = Path(__file__).parent
_CPP, _METAL = _HERE / "quantized_matvec.cpp", _HERE / "quantized_matvec.metal"
_METAL_TASK = "w2d4.4"
_ROWS, _SIMDGROUPS = 4, 2  # rows of W per simdgroup, simdgroups per threadgroup


def quantized_matvec_scalar(
    x: mx.array, packed: mx.array, scales: mx.array, biases: mx.array, group_size: int = 64, bits: int = 4
) -> mx.array:
    """Compute x W^T, with W packed by `quantize`, one weight at a time, on one thread.

    Shapes: x: N.. x I, packed: O x (I * bits / 32) uint32, scales and biases: O x (I / group_size) -> N.. x O.
    The result has the dtype of x; the arithmetic is float32. scales and biases share a dtype, which x need not have.

    Raises:
        ValueError: a shape or dtype is wrong, or `quantize` does not take these bits or this group_size.
    """
    return _run(x, packed, scales, biases, group_size, bits, "quantized_matvec_scalar", "w2d4.1")


def quantized_matvec_vector(
    x: mx.array, packed: mx.array, scales: mx.array, biases: mx.array, group_size: int = 64, bits: int = 4
) -> mx.array:
    """Compute the same result as `quantized_matvec_scalar`, several weights at a time, on one thread."""
    return _run(x, packed, scales, biases, group_size, bits, "quantized_matvec_vector", "w2d4.2")


def quantized_matvec(
    x: mx.array, packed: mx.array, scales: mx.array, biases: mx.array, group_size: int = 64, bits: int = 4
) -> mx.array:
    """Compute the result of `quantized_matvec_scalar`, several weights at a time, on threads that share the rows of W.

    The kernel reads nothing past the last row of W. This op is made for few rows of x, and multiplies each row
    separately. `quantized_matmul` is faster from about eight rows onwards.
    If the default device is a GPU and you have written the Metal kernel, `quantized_matvec_metal` runs instead.
    """
    if uses_metal(_METAL, _METAL_TASK):
        return quantized_matvec_metal(x, packed, scales, biases, group_size, bits)
    return _run(x, packed, scales, biases, group_size, bits, "quantized_matvec", "w2d4.2", "w2d4.3")


def quantized_matvec_metal(
    x: mx.array, packed: mx.array, scales: mx.array, biases: mx.array, group_size: int = 64, bits: int = 4
) -> mx.array:
    """Compute the same result as `quantized_matvec_scalar` on a GPU, or in metal_host if there is none. A simdgroup
    multiplies a few rows of W by a row of x.
    """
    tile = (1, _ROWS * _SIMDGROUPS)
    return product_metal(_METAL, _METAL_TASK, x, packed, scales, biases, group_size, bits, tile, 32 * _SIMDGROUPS)


def product_metal(
    source: Path,
    task: str,
    x: mx.array,
    packed: mx.array,
    scales: mx.array,
    biases: mx.array,
    group_size: int,
    bits: int,
    tile: tuple[int, int],
    threads: int,
) -> mx.array:
    """Compute a product with the Metal kernel in the file `source`. tile: how many rows of x, and how many rows of W, a
    threadgroup multiplies. threads: how many threads a threadgroup has."""
    check_product(x, packed, scales, biases, group_size, bits)
    run = metal(source, source.stem, ["x", "packed", "scales", "biases", "O"], ["out"], task)
    M, O = math.prod(x.shape[:-1]), packed.shape[0]
    if x.size == 0 or packed.size == 0:
        return mx.zeros((*x.shape[:-1], O), x.dtype)
    inputs = [x.reshape(M, -1), packed, scales, biases, mx.array(O, mx.uint32)]
    grid, group = (threads * -(-O // tile[1]), -(-M // tile[0]), 1), (threads, 1, 1)
    (out,) = run(inputs, [((M, O), x.dtype)], grid, group, [("T", x.dtype), ("bits", bits)])
    return out.reshape(*x.shape[:-1], O)


def _run(
    x: mx.array,
    packed: mx.array,
    scales: mx.array,
    biases: mx.array,
    group_size: int,
    bits: int,
    name: str,
    *tasks: str,
) -> mx.array:
    check_product(x, packed, scales, biases, group_size, bits)
    run = kernel(_CPP, name, *tasks)
    if run is None:
        return fallback.quantized_matmul(x, packed, scales, biases, group_size, bits)
    shape = (*x.shape[:-1], packed.shape[0])
    if x.size == 0 or packed.size == 0:
        return mx.zeros(shape, x.dtype)
    inputs = [mx.contiguous(array) for array in (x.reshape(-1, x.shape[-1]), packed, scales, biases)]
    return run(inputs, [((x.size // x.shape[-1], packed.shape[0]), x.dtype)], [bits, group_size])[0].reshape(shape)


def check_product(
    x: mx.array, packed: mx.array, scales: mx.array, biases: mx.array, group_size: int, bits: int
) -> None:
    """Raise a ValueError if the arguments are not as the docstring of `quantized_matvec_scalar` describes them."""
    if bits not in (2, 4, 8):
        raise ValueError(f"bits: expected 2, 4 or 8, got {bits}")
    if group_size not in (32, 64, 128):
        raise ValueError(f"group_size: expected 32, 64 or 128, got {group_size}")
    for name, array in (("x", x), ("scales", scales), ("biases", biases)):
        if not mx.issubdtype(array.dtype, mx.floating) or array.ndim == 0:
            raise ValueError(f"{name}: expected an array of a float dtype, got shape {array.shape} of {array.dtype}")
    if packed.ndim != 2 or packed.dtype != mx.uint32:
        raise ValueError(f"packed: expected O x (I / {32 // bits}) of uint32, got {packed.shape} of {packed.dtype}")
    O, I = packed.shape[0], packed.shape[1] * 32 // bits
    if x.shape[-1] != I or I % group_size:
        raise ValueError(f"x: expected rows of {I} numbers, a multiple of {group_size}, got shape {x.shape}")
    if scales.shape != (O, I // group_size) or biases.shape != scales.shape or biases.dtype != scales.dtype:
        raise ValueError(
            f"scales and biases: expected {(O, I // group_size)} of one dtype, "
            f"got {scales.shape} of {scales.dtype} and {biases.shape} of {biases.dtype}"
        )
