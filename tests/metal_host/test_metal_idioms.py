"""Kernels that are right compute what NumPy does, in both modes and any order of threads, without a complaint."""

import mlx.core as mx
import numpy as np
import pytest
from idiom import Idiom
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
