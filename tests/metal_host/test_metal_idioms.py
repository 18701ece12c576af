"""Correct kernels compute what NumPy computes, in both modes and any order of threads, without a complaint."""

import mlx.core as mx
import numpy as np
import pytest
from idiom import Idiom, X, each
from metal_idioms import IDIOMS

from metal_host import metal_kernel


def run(name: str, idiom: Idiom) -> np.ndarray:
    kernel = metal_kernel(name, list(idiom.inputs), ["out"], idiom.source, idiom.header, **idiom.options)
    inputs = [mx.array(x) if isinstance(x, np.ndarray) else x for x in idiom.inputs.values()]
    (out,) = kernel(
        inputs=inputs,
        template=idiom.template,
        grid=idiom.grid,
        threadgroup=idiom.threadgroup,
        output_shapes=[idiom.shape],
        output_dtypes=[idiom.dtype],
        init_value=idiom.init_value,
    )
    assert out.dtype == idiom.dtype
    return np.array(out.astype(mx.float32) if out.dtype == mx.bfloat16 else out)


def compare(name: str) -> None:
    idiom = IDIOMS[name]
    expected = np.asarray(idiom.expected(), np.float64)
    scale = np.maximum(1, np.abs(expected))
    assert (
        np.max(np.abs(run(name, idiom).astype(np.float64).reshape(expected.shape) - expected) / scale)
        <= idiom.tolerance
    )


@pytest.mark.parametrize("mode", ["plain", "check"])
@pytest.mark.parametrize("name", IDIOMS)
def test_idiom(name, mode, monkeypatch):
    monkeypatch.setenv("METAL_HOST", mode)
    compare(name)


@pytest.mark.parametrize("order", ["backward", "1", "2", "3"])
@pytest.mark.parametrize("name", ["threadgroup_tree", "two_levels", "tiled_matmul", "device_barrier", "histogram"])
def test_order_of_threads_changes_nothing(name, order, monkeypatch):
    monkeypatch.setenv("METAL_HOST", "check")
    monkeypatch.setenv("METAL_HOST_ORDER", order)
    compare(name)


@pytest.mark.parametrize(
    ("turns", "least", "most"), [((-1, 1), 0.9, 1.01), ((10, 13), 4, 20)], ids=["within a turn", "outside"]
)
@pytest.mark.parametrize("name", ["sin", "cos", "sinpi", "cospi"])
def test_fast_is_as_inexact_as_apple_allows(name, turns, least, most):
    """An error of 2^-13 from -pi to pi, and a larger one outside."""
    unit = 1 if "pi" in name else np.pi
    x = (np.linspace(*turns, 1000) * unit).astype(np.float32)
    exact = getattr(np, name.removesuffix("pi"))(x / unit * np.pi)
    size = {"inputs": {"x": x}, "shape": (1000,), "grid": (1000, 1, 1)}
    fast, precise = (
        np.abs(run(name, each(f"{space}::{name}(x[i])", lambda: exact, **size)) - exact).max()
        for space in ("fast", "precise")
    )
    assert least * 2**-13 < fast < most * 2**-13
    assert precise < 1e-5


def test_fast_tangent():
    expected = np.sin(X[:64]) / np.cos(X[:64])
    idiom = each("fast::tan(x[i])", lambda: expected, inputs={"x": X[:64]}, shape=(64,), grid=(64, 1, 1))
    error = np.abs(run("tan", idiom) - expected) * np.cos(X[:64]) ** 2
    assert 2**-14 < error.max() < 2**-12
