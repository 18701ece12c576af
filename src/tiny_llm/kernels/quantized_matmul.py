"""Many vectors times a quantised matrix, a tile at a time, on the CPU and on a GPU. A model needs this product for
prompts."""

from pathlib import Path

import mlx.core as mx
import numpy as np

from tiny_llm_native import fallback
from tiny_llm_native.extension import kernel
from tiny_llm_native.metal import uses_metal

from .quantized_matvec import check_product, product_metal

__all__ = ["matmul_tile", "quantized_matmul", "quantized_matmul_metal", "tile_shape"]

_HERE = Path(__file__).parent
_CPP, _METAL = _HERE / "quantized_matmul.cpp", _HERE / "quantized_matmul.metal"
_METAL_TASK = "w2d6.3"
_TILE, _THREADS = 32, 128  # in Metal, per threadgroup: rows of x and of W, and threads


def tile_shape() -> tuple[int, int]:
    """Return M_TILE and N_TILE: how many rows of x, and how many rows of W, a tile multiplies. Both numbers depend on
    how many registers the processor has."""
    run = kernel(_CPP, "tile_shape", "w2d6.1")
    if run is None:
        return 8, 32
    M_TILE, N_TILE = (int(size) for size in np.array(run([], [((2,), mx.int32)])[0]))
    return M_TILE, N_TILE


def matmul_tile(x: mx.array, w: mx.array) -> mx.array:
    """Return x^T w for one tile, with all sums kept in registers. 0 * inf and 0 * NaN are NaN, as in `x.T @ w`.

    Shapes: x: K x M_TILE, w: K x N_TILE -> M_TILE x N_TILE, all float32.

    Raises:
        ValueError: a shape or dtype is wrong.
    """
    _check_tile(x, w)
    run = kernel(_CPP, "matmul_tile", "w2d6.1")
    return x.T @ w if run is None else run([mx.contiguous(x), mx.contiguous(w)], [(tile_shape(), mx.float32)])[0]


def quantized_matmul(
    x: mx.array, packed: mx.array, scales: mx.array, biases: mx.array, group_size: int = 64, bits: int = 4
) -> mx.array:
    """Return x W^T, with W packed by `quantize`. Threads share the tiles of the result.

    If the default device is a GPU and you have written the Metal kernel, `quantized_matmul_metal` runs instead.

    Shapes: x: N.. x I, packed: O x (I * bits / 32) uint32, scales and biases: O x (I / group_size) -> N.. x O.
    The result has the dtype of x; the arithmetic is float32. scales and biases share a dtype, which x need not have.

    Raises:
        ValueError: a shape or dtype is wrong, or `quantize` does not take these bits or this group_size.
    """
    if uses_metal(_METAL, _METAL_TASK):
        return quantized_matmul_metal(x, packed, scales, biases, group_size, bits)
    check_product(x, packed, scales, biases, group_size, bits)
    run = kernel(_CPP, "quantized_matmul", "w2d6.1", "w2d6.2")
    if run is None:
        return fallback.quantized_matmul(x, packed, scales, biases, group_size, bits)
    shape = (*x.shape[:-1], packed.shape[0])
    if x.size == 0 or packed.size == 0:
        return mx.zeros(shape, x.dtype)
    inputs = [mx.contiguous(array) for array in (x.reshape(-1, x.shape[-1]), packed, scales, biases)]
    return run(inputs, [((x.size // x.shape[-1], packed.shape[0]), x.dtype)], [bits, group_size])[0].reshape(shape)


def quantized_matmul_metal(
    x: mx.array, packed: mx.array, scales: mx.array, biases: mx.array, group_size: int = 64, bits: int = 4
) -> mx.array:
    """Compute the same result as `quantized_matmul` on a GPU, or in metal_host if there is none. A threadgroup computes
    a tile of the result.
    """
    tile = (_TILE, _TILE)
    return product_metal(_METAL, _METAL_TASK, x, packed, scales, biases, group_size, bits, tile, _THREADS)


def _check_tile(x: mx.array, w: mx.array) -> None:
    M_TILE, N_TILE = tile_shape()
    for name, array, width in (("x", x, M_TILE), ("w", w, N_TILE)):
        if array.shape != (*x.shape[:1], width) or array.dtype != mx.float32:
            raise ValueError(f"{name}: expected K x {width} of float32, got {array.shape} of {array.dtype}")
