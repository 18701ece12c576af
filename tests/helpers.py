"""Tools for the tests of all days: seeded inputs, dtypes, and functions that compare arrays."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm_course.diagnosis.observation import ChangedArgumentError, record

__all__ = [
    "DTYPES",
    "TOLERANCE",
    "Inputs",
    "array64",
    "assert_attends",
    "assert_close",
    "assert_unchanged",
    "over_dtypes",
]

DTYPES = [mx.float32, mx.float16, mx.bfloat16]
TOLERANCE = {mx.float32: 2e-5, mx.float16: 5e-3, mx.bfloat16: 4e-2}

over_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("mlx.core."))


class Inputs:
    """A source of random arrays. Each draw gives new values, but the same seed gives the same arrays on every
    machine."""

    def __init__(self, seed: int, dtype: mx.Dtype = mx.float32):
        self._random = np.random.RandomState(seed)
        self.dtype = dtype

    def normal(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> mx.array:
        """Draw standard normal values, times `scale`, plus `shift`."""
        array = mx.array(self._random.standard_normal(shape) * scale + shift).astype(self.dtype)
        _made[id(array)] = array, _values(array)
        return array

    def tokens(self, *shape: int, vocab_size: int) -> mx.array:
        """Draw token ids from 0 to vocab_size - 1."""
        return mx.array(self._random.randint(0, vocab_size, shape))


def array64(array: mx.array) -> np.ndarray:
    """Return an array's values in NumPy float64, in which the oracles compute.

    For an array that `Inputs` has made, return the original values, because the code under test may have changed
    the array.
    """
    made = _made.get(id(array))
    return made[1] if made else _values(array)


_made: dict[int, tuple[mx.array, np.ndarray]] = {}  # keyed by id; while the arrays are kept here, ids stay unique


def _values(array: mx.array) -> np.ndarray:
    return np.array(array.astype(mx.float32)).astype(np.float64)


def assert_close(
    got: Any, expected: Any, *, dtype: mx.Dtype = mx.float32, tolerance: float | None = None, what: str = ""
) -> None:
    """Fail unless `got` is an mx.array of this dtype with the shape and values of `expected`. The tests of all days
    compare arrays with this function.

    A value may differ by tolerance * (1 + |expected|), and must be NaN where NaN is expected. what: a description of
    `got`, for the first line of a failure message.
    """
    __tracebackhide__ = True
    expected = array64(expected) if isinstance(expected, mx.array) else np.asarray(expected, np.float64)
    tolerance = TOLERANCE[dtype] if tolerance is None else tolerance
    said = f"{what}:\n" if what else ""
    if isinstance(got, mx.array):
        record(_values(got), str(got.dtype), tolerance)
    else:
        pytest.fail(f"{said}expected an mx.array, got {_describe(got)}", pytrace=False)
    if got.shape != expected.shape:
        pytest.fail(f"{said}wrong shape: expected {expected.shape}, got {got.shape}")
    if got.dtype != dtype:
        pytest.fail(f"{said}wrong dtype: expected {dtype}, got {got.dtype}; the values were not compared")
    values = _values(got)
    with np.errstate(invalid="ignore"):
        same = (values == expected) | (np.isnan(values) & np.isnan(expected))
        error = np.where(same, 0, np.abs(values - expected))  # equal values, even inf and inf, have an error of 0
    wrong = ~(error <= tolerance * (1 + np.abs(np.where(np.isfinite(expected), expected, 0))))
    if wrong.any():
        pytest.fail(said + _mismatch(values, expected, error, wrong, tolerance, dtype))


def assert_attends(got: Any, expected: Any, **options: Any) -> None:
    """Fail unless `got` is a tuple of the expected output and weights. options: passed on to `assert_close`."""
    __tracebackhide__ = True
    assert isinstance(got, tuple), f"expected a tuple of output and weights, got {type(got).__name__}"
    assert len(got) == 2, f"expected output and weights, got {len(got)} results"
    for array, numbers in zip(got, expected, strict=True):
        assert_close(array, numbers, **options)


def assert_unchanged(before: list[np.ndarray], *arrays: mx.array) -> None:
    """Fail if an array has changed since `before`: code such as `x *= 2` writes into the caller's array."""
    __tracebackhide__ = True
    for i, (old, array) in enumerate(zip(before, arrays, strict=True)):
        record(_values(array), str(array.dtype), 0)
        if not np.array_equal(old, _values(array)):
            raise ChangedArgumentError(
                f"argument {i} was changed: `x += y` and `x[...] = y` write into the caller's array"
            )


def _describe(value: Any) -> str:
    if value is None:
        return "None (is a `return` missing?)"
    name = f"{type(value).__module__}.{type(value).__name__}"
    return f"{name} (`mx.array(x)` converts it)" if isinstance(value, np.ndarray | np.generic) else name


def _mismatch(
    values: np.ndarray, expected: np.ndarray, error: np.ndarray, wrong: np.ndarray, tolerance: float, dtype: mx.Dtype
) -> str:
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    lines = [
        f"{wrong.sum()} of {wrong.size} values differ (shape {expected.shape}, {dtype})",
        f"  first at {list(first)}: expected {expected[first]:.6g}, got {values[first]:.6g}",
    ]
    if np.nanmax(error, initial=0) > 0:
        allowed = f"{tolerance:.3g} * (1 + |expected|)" if tolerance else "none"
        lines.append(f"  largest error: {np.nanmax(error):.3g} (allowed: {allowed})")
    if np.isnan(values).any():
        nan = f"{np.isnan(values).sum()} values are NaN"
        lines.append(f"  {nan}: from 0 / 0 or inf - inf; or a kernel never wrote them, or read outside of an array")
    return "\n".join(lines)
