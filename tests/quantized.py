"""Quantised matrices for tests of products, packed and in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from helpers import Inputs, array64, assert_close
from parallel import race_injection

__all__ = [
    "ROUNDED_ONCE",
    "Matrix",
    "assert_product",
    "assert_product_cancels",
    "assert_product_in_turns",
    "matrix",
    "rows",
]

ROUNDED_ONCE = {mx.float32: 1e-5, mx.float16: 6e-4, mx.bfloat16: 4.5e-3}  # for float32 sums that are rounded once


@dataclass(frozen=True)
class Matrix:
    """A quantised matrix, in the form that `quantize` returns."""

    packed: mx.array
    scales: mx.array
    biases: mx.array
    group_size: int = 64
    bits: int = 4

    @property
    def arguments(self) -> tuple[mx.array, mx.array, mx.array, int, int]:
        return self.packed, self.scales, self.biases, self.group_size, self.bits

    @property
    def dense(self) -> np.ndarray:
        """Return the matrix in float64."""
        shifts = np.arange(0, 32, self.bits, dtype=np.uint32)
        levels = np.array(self.packed)[..., None] >> shifts & (2**self.bits - 1)
        scales, biases = (np.repeat(array64(x), self.group_size, axis=-1) for x in (self.scales, self.biases))
        return levels.reshape(scales.shape) * scales + biases


def matrix(seed: int, O: int, I: int, bits: int = 4, group_size: int = 64, dtype: mx.Dtype = mx.float32) -> Matrix:
    """Return a random O x I matrix with values around 1 and all levels, and with signed scales and biases."""
    words = np.random.RandomState(seed).randint(0, 2**32, (O, I * bits // 32), np.uint32)
    inputs = Inputs(seed, dtype)
    scales = inputs.normal(O, I // group_size, scale=2 / 2**bits)
    biases = inputs.normal(O, I // group_size)
    return Matrix(mx.array(words), scales, biases, group_size, bits)


def rows(seed: int, *shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    """Return random rows whose products with a matrix from `matrix` are around 1."""
    return Inputs(seed, dtype).normal(*shape, scale=max(shape[-1], 1) ** -0.5)


def assert_product(
    product: Callable[..., Any], x: mx.array, w: Matrix, dtype: mx.Dtype = mx.float32, tolerance: float | None = None
) -> None:
    """Fail unless product(x, w) is x W^T."""
    __tracebackhide__ = True
    got = product(x, *w.arguments)
    assert_close(got, array64(x) @ w.dense.T, dtype=dtype, tolerance=tolerance or ROUNDED_ONCE[dtype])


def assert_product_cancels(product: Callable[..., Any], dtype: mx.Dtype) -> None:
    """Fail unless large products of both signs cancel exactly.

    The products would not cancel if weights around 16 were rounded to 16 bits, or float32 scales and biases to the
    dtype of x. Every sum is exact in float32, in any order.
    """
    __tracebackhide__ = True
    packed = matrix(499, 9, 448).packed
    signs = np.array([[1 - 2 * (i // run % 2) for i in range(448)] for run in (1, 2, 7)])
    w = Matrix(packed, mx.full((9, 7), 2.0**-8, dtype), mx.full((9, 7), 16.0, dtype))
    assert_product(product, mx.array(signs).astype(dtype), w, dtype)
    if dtype != mx.float32:
        both = mx.broadcast_to(mx.array([*[16 + 2.0**-7, -16] * 3, 0]), (9, 7))
        ones = mx.full(packed.shape, 0x11111111, mx.uint32)
        assert_product(product, mx.ones((2, 448), dtype), Matrix(ones, both, both), dtype)


def assert_product_in_turns(impl: Any, product: Callable[..., Any], x: mx.array, w: Matrix) -> None:
    """Fail unless product(x, w) is x W^T in 16 calls, in which one part of the work waits until all others are done."""
    __tracebackhide__ = True
    product(x[:1], *w.arguments)
    expected = array64(x) @ w.dense.T
    with race_injection(impl):
        for _ in range(16):
            assert_close(product(x, *w.arguments), expected, tolerance=ROUNDED_ONCE[mx.float32])
