"""Runs of kernels: modes, crashes, limits, several processes and threads at once, and leftovers."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from metal_host import MetalHostError, MetalKernelError, metal_kernel
from metal_host.store import keep_small

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "uint i = thread_position_in_grid.x;\nout[i] = x[i] * 2;"
CODE = f"""
import mlx.core as mx
from metal_host import metal_kernel
kernel = metal_kernel("double_it", ["x"], ["out"], {SOURCE!r})
sizes = dict(grid=(8, 1, 1), threadgroup=(8, 1, 1), output_shapes=[(8,)], output_dtypes=[mx.float32])
assert kernel(inputs=[mx.ones(8)], **sizes)[0].tolist() == [2.0] * 8
"""


def call(source=SOURCE, n=8, threadgroup=8, out=8, x=None, **options):
    kernel = metal_kernel("double_it", ["x"], ["out"], source)
    sizes = {"grid": (n, 1, 1), "threadgroup": (threadgroup, 1, 1), "output_shapes": [(out,)]}
    x = mx.arange(8).astype(mx.float32) if x is None else x
    return kernel(inputs=[x], output_dtypes=[mx.float32], **sizes, **options)[0]


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.setenv("METAL_HOST", "plain")


def test_modes(monkeypatch):
    assert call().tolist() == [2.0 * i for i in range(8)]
    monkeypatch.setenv("METAL_HOST", "chekc")
    with pytest.raises(ValueError, match="METAL_HOST: expected plain, check or off, got 'chekc'"):
        call()
    monkeypatch.setenv("METAL_HOST", "check")
    monkeypatch.setenv("METAL_HOST_ORDER", "upward")
    with pytest.raises(ValueError, match="METAL_HOST_ORDER: expected forward, backward or a number"):
        call()


@pytest.mark.skipif(mx.metal.is_available(), reason="there is Metal")
def test_off_is_mlx(monkeypatch):
    monkeypatch.setenv("METAL_HOST", "off")
    with pytest.raises((RuntimeError, ValueError), match=r"Metal|gpu|GPU"):
        mx.eval(call())


@pytest.mark.skipif(mx.metal.is_available(), reason="there is Metal")
def test_without_metal_the_default_is_plain(monkeypatch):
    monkeypatch.delenv("METAL_HOST")
    assert call().tolist() == [2.0 * i for i in range(8)]


def test_plain_run_survives_a_crash():
    with pytest.raises(
        MetalKernelError, match=r"belongs to no buffer\n    double_it.metal:1: .*\n  by thread \(0, 0, 0\)"
    ):
        call("out[0] = x[1 << 30];")
    with pytest.raises(MetalKernelError, match="division of an integer by zero"):
        call("out[0] = 10 / (x_shape[0] - 8);")


def test_plain_run_ends(monkeypatch):
    monkeypatch.setenv("METAL_HOST_SECONDS", "1")
    with pytest.raises(MetalKernelError, match="has not ended after 1 seconds"):
        call("while (x[0] < 1) out[0] += 1;")


@pytest.mark.parametrize("mode", ["plain", "check"])
def test_sizes(mode, monkeypatch):
    monkeypatch.setenv("METAL_HOST", mode)
    assert call(n=0, out=0, x=mx.zeros((0,))).shape == (0,)
    assert (
        call("out[thread_position_in_grid.x] = simd_sum(1.0f);", 1000, 1000, 1000).tolist() == [32.0] * 992 + [8.0] * 8
    )
    assert call("out[thread_position_in_grid.x] = threads_per_threadgroup.x;", 8, 1000).tolist() == [8.0] * 8


@pytest.mark.parametrize("transform", [mx.compile, mx.vmap])
def test_what_needs_no_values_is_refused(transform):
    x = mx.ones(8) if transform is mx.compile else mx.ones((2, 8))
    with pytest.raises(MetalHostError, match="computes at once, so it cannot be called within mx"):
        transform(lambda x: call(x=x))(x)


def test_compilation_may_be_turned_off():
    mx.disable_compile()
    try:
        assert mx.compile(lambda x: call(x=x))(mx.ones(8)).tolist() == [2.0] * 8
    finally:
        mx.enable_compile()


def test_derivative_is_never_zero_by_mistake():
    x = mx.arange(8).astype(mx.float32)
    for transform in (mx.grad(lambda x: call(x=x).sum()), lambda x: mx.jvp(lambda x: call(x=x), [x], [x])):
        with pytest.raises(MetalHostError, match="kernel 'double_it' has no derivative: call it in"):
            transform(x)
    function = mx.custom_function(lambda x: call(x=x))
    function.vjp(lambda x, cotangent, output: 2 * cotangent)
    assert mx.grad(lambda x: (x * function(x)).sum())(x).tolist() == [4.0 * i for i in range(8)]
    assert mx.grad(lambda y: (y * call(x=x)).sum())(x).tolist() == [2.0 * i for i in range(8)]


def test_complex_is_refused():
    with pytest.raises(MetalHostError, match="complex64 is not supported"):
        call(x=mx.zeros(8, mx.complex64))


def test_strided_memory():
    x = mx.arange(64).astype(mx.float32).reshape(8, 8)
    kernel = metal_kernel(
        "strided", ["x"], ["out"], "uint i = thread_position_in_grid.x;\nout[i] = x[i * x_strides[0]];", "", False
    )
    for view in (x[:, 3], x[5], x[::-1, 2], x.T[4], mx.broadcast_to(mx.array([7.0]), (8,))):
        sizes = {"grid": (8, 1, 1), "threadgroup": (8, 1, 1), "output_shapes": [(8,)], "output_dtypes": [mx.float32]}
        for mode in ("plain", "check"):
            os.environ["METAL_HOST"] = mode
            assert kernel(inputs=[view], **sizes)[0].tolist() == view.tolist()


def test_threads_at_once():
    found = []

    def work(k):
        found.extend(call(f"out[thread_position_in_grid.x] = {k % 3};").tolist() == [k % 3] * 8 for _ in range(3))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [True] * 18


def test_results_of_other_threads():
    found = []
    worker = threading.Thread(target=lambda: found.append(call()))
    worker.start()
    worker.join()
    assert found[0].tolist() == [2.0 * i for i in range(8)]


def test_processes_build_at_once_and_leave_nothing_else(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = os.environ | {"METAL_HOST": "check", "METAL_HOST_CACHE": str(tmp_path / "built")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(temporary)}
    runs = [subprocess.Popen([sys.executable, "-c", CODE], env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    for run in runs:
        _, errors = run.communicate(timeout=600)
        assert run.returncode == 0, errors.decode()
    left = sorted(file.name.split("-")[0] for file in (tmp_path / "built").iterdir())
    assert left == ["kernel", "runtime"]
    assert list(temporary.iterdir()) == []


def test_crashes_leave_nothing():
    before = set(os.listdir(tempfile.gettempdir()))
    with pytest.raises(MetalKernelError):
        call("out[0] = x[1 << 30];")
    left = set(os.listdir(tempfile.gettempdir())) - before
    assert not [name for name in left if name.startswith("metal_host")]


def test_store_is_kept_small(tmp_path):
    old = time.time() - 7200
    for i in range(6):
        (tmp_path / f"kernel-{i}").touch()
        os.utime(tmp_path / f"kernel-{i}", (old + i, old + i))
    (tmp_path / "runtime-0").mkdir()
    (tmp_path / ".unfinished").mkdir()
    for name in ("runtime-0", ".unfinished"):
        os.utime(tmp_path / name, (old, old))
    os.utime(tmp_path / "kernel-0")  # marks it as used
    keep_small(tmp_path, kept=3)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["kernel-0", "kernel-4", "kernel-5"]
    keep_small(tmp_path, kept=0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["kernel-0"]


def test_no_compiler(monkeypatch, tmp_path):
    code = "import os; os.environ['METAL_HOST_CXX'] = '/nowhere/c++'\n" + CODE
    environment = os.environ | {"METAL_HOST_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600)
    assert "is there a C++ compiler? ./course doctor" in run.stderr
    assert run.stderr.splitlines()[-1].startswith("metal_host.errors.MetalHostError")


def test_bfloat_is_rounded_as_mlx_does(monkeypatch):
    bits = np.random.default_rng(0).integers(0, 1 << 32, 4096, np.uint64).astype(np.uint32)
    x = mx.array(bits.view(np.float32))
    kernel = metal_kernel(
        "round", ["x"], ["b", "h"], "uint i = thread_position_in_grid.x;\nb[i] = bfloat(x[i]);\nh[i] = half(x[i]);"
    )
    sizes = {"grid": (4096, 1, 1), "threadgroup": (256, 1, 1), "output_shapes": [(4096,)] * 2}
    b, h = kernel(inputs=[x], output_dtypes=[mx.bfloat16, mx.float16], **sizes)
    for ours, theirs in ((b, x.astype(mx.bfloat16)), (h, x.astype(mx.float16))):
        same = (ours.view(mx.uint16) == theirs.view(mx.uint16)) | (mx.isnan(ours) & mx.isnan(theirs))
        assert same.all().item()
