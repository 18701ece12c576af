"""Kernels in Metal: the sections of a file, the messages of errors, when an op runs a kernel, and stubs that
compile."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

from metal_host import counting
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_native import fallback, metal
from tiny_llm_native.compiler import CompileError
from tiny_llm_native.extension import KernelError
from tiny_llm_ref.kernels import (
    attention,
    paged_attention,
    quantized_matmul,
    quantized_matvec,
    rms_norm,
    rope,
    softmax,
    swiglu,
)

REFERENCE = Path(softmax.__file__).parent
TEXT = """\
// Two kernels.

template <typename T>
T twice(T x) {
    return 2 * x;
}

KERNEL(double_it) {
    // task w2d2.5 begin
    const uint i = thread_position_in_grid.x;
    if (i < threads_per_grid.x) {
        out[i] = twice(x[i]);
    }
    // task w2d2.5 end
}

KERNEL(halve) {
    out[thread_position_in_grid.x] = x[thread_position_in_grid.x] / 2;
}
"""


@pytest.fixture
def file(tmp_path):
    """Return a Metal file in a folder of its own."""
    file = tmp_path / "two.metal"
    file.write_text(TEXT)
    return file


def run(file, x, name="double_it"):
    return metal.metal(file, name, ["x"], ["out"], "w2d2.5")([x], [(x.shape, x.dtype)], (x.size, 1, 1), (32, 1, 1))[0]


def test_sections_share_the_header(file):
    x = mx.arange(40.0)
    assert run(file, x).tolist() == (2 * x).tolist()
    assert run(file, x, "halve").tolist() == (x / 2).tolist()


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 1, 7), (3,), (7, 1)])
def test_few_elements(file, shape):
    """Small arrays are in `device` memory like others, if they have two axes; and only their elements are computed."""
    x = mx.random.normal(shape)
    assert run(file, x).tolist() == (2 * x).tolist()


def test_an_edited_file_is_read_again(file):
    x = mx.arange(40.0)
    run(file, x)
    file.write_text(TEXT.replace("2 * x", "x + x + x"))
    assert run(file, x).tolist() == (3 * x).tolist()


def test_what_is_not_written_is_said_before_anything_is_compiled(file):
    file.write_text(make_stub(TEXT, filename="two.metal").replace("twice", "("))
    with pytest.raises(NotImplementedError, match=r"^Week 2 Day 2 Task 5: what belongs here is yours to write\."):
        run(file, mx.zeros(40))


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        (
            "KERNEL(double_it)",
            "KERNEL(duoble_it)",
            CompileError,
            r"a section `KERNEL\(double_it\) \{`.*found KERNEL\(duoble",
        ),
        ("return 2 *", "retrun 2 *", CompileError, r"[^.]two\.metal:5: 'retrun'"),
        ("twice(x[i])", "twice(y[i])", CompileError, r"[^.]two\.metal:12: 'y' was not declared"),
        (
            "x[i]",
            "x[i + 1]",
            KernelError,
            r"out of bounds: a read of x\[40\].*\n +[^ ]*two\.metal:12: out\[i\]",
        ),
        ("return 2 * x;", "return 2 / int(x);", KernelError, r"division.*\n +[^ ]*two\.metal:5: return 2"),
    ],
)
def test_errors_name_the_line_of_the_file(file, old, new, error, said):
    file.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(error, match=f"(?s){said}"):
        run(file, mx.arange(40.0))


X, W = mx.arange(150.0).reshape(3, 50) / 100, mx.quantize(mx.arange(192.0).reshape(3, 64) / 100)
OPS = {  # module, name of the op, arguments, fallback
    "softmax": (softmax, "softmax", (X,), fallback.softmax),
    "matvec": (
        quantized_matvec,
        "quantized_matvec",
        (mx.ones((1, 64)), *W),
        partial(fallback.quantized_matmul, group_size=64, bits=4),
    ),
    "matmul": (
        quantized_matmul,
        "quantized_matmul",
        (mx.ones((9, 64)), *W),
        partial(fallback.quantized_matmul, group_size=64, bits=4),
    ),
    "rms_norm": (rms_norm, "rms_norm", (X, mx.ones(50), 1e-5), fallback.rms_norm),
    "add_rms_norm": (rms_norm, "add_rms_norm", (X, X, mx.ones(50), 1e-5), fallback.add_rms_norm),
    "rope": (rope, "rope", (mx.ones((1, 3, 2, 8)), mx.array([5]), 1e4, False), fallback.rope),
    "swiglu": (swiglu, "swiglu", (X, X), fallback.swiglu),
    "blocks": (
        attention,
        "flash_attention",
        (mx.ones((2, 9, 8)), *[mx.ones((1, 9, 8))] * 2, 0.5, None),
        fallback.attention,
    ),
    "parts": (
        attention,
        "flash_attention",
        (mx.ones((2, 1, 8)), *[mx.ones((1, 9, 8))] * 2, 0.5, None),
        fallback.attention,
    ),
    "pages": (
        paged_attention,
        "paged_attention",
        (mx.ones((2, 2, 8)), *[mx.ones((3, 1, 4, 8))] * 2, mx.array([[2, 0]]), mx.array([[0, 2, 6]]), 0.5),
        fallback.paged_attention,
    ),
}
each_op = pytest.mark.parametrize(("module", "name", "arguments", "fallback"), OPS.values(), ids=OPS)


@each_op
def test_a_stub_compiles(module, name, arguments, fallback, tmp_path, monkeypatch):
    """The stub runs and writes nothing. If it did not say that it is a stub, its result would be refused."""
    for source in REFERENCE.glob("*.metal"):
        stub = make_stub(source.read_text(encoding="utf-8"), filename=source.name)
        (tmp_path / source.name).write_text(stub.replace(" is yours to write", ""), encoding="utf-8")
    for constant in {"_METAL", "_JOIN"} & vars(module).keys():
        monkeypatch.setattr(module, constant, tmp_path / getattr(module, constant).name)
    monkeypatch.setattr(metal, "check_written", lambda source, task: None)
    with pytest.raises(KernelError, match="no thread wrote"):
        getattr(module, f"{name}_metal")(*arguments)


@each_op
def test_an_op_takes_metal_on_a_gpu(module, name, arguments, fallback, monkeypatch):
    monkeypatch.setattr(module, "kernel", lambda *_: pytest.fail("took the CPU's body"))
    monkeypatch.setattr(module, "uses_metal", lambda *_: True)
    got, expected = getattr(module, name)(*arguments), fallback(*arguments)
    for one, other in zip(*([x] if isinstance(x, mx.array) else x for x in (got, expected)), strict=True):
        np.testing.assert_allclose(np.array(one), np.array(other), rtol=1e-5, atol=1e-6)


def place_of(array):
    return np.array(array, copy=False).__array_interface__["data"][0]


@pytest.mark.parametrize("L", [1, 12])
def test_attention_copies_nothing_of_a_cache(monkeypatch, L):
    """A cache grows in steps, so keys and values are views of it: kernels must read the cache's own memory, in
    place."""
    monkeypatch.setenv("METAL_HOST", "check")
    query, caches = mx.ones((2, 4, L, 16)), [mx.ones((2, 2, 64, 16)) for _ in range(2)]
    handed, call = [], metal.MetalKernel.__call__
    monkeypatch.setattr(metal.MetalKernel, "__call__", lambda *given: handed.append(given[1]) or call(*given))
    with counting() as counts:
        out = attention.flash_attention_metal(query, *(cache[:, :, :40] for cache in caches))
    assert mx.allclose(out, query)
    assert [place_of(x) for x in handed[0][1:3]] == [place_of(cache) for cache in caches]
    for name in ("key", "value"):
        assert (counts.buffers[name].copied, counts.buffers[name].distinct_read) == (0, 2 * 2 * 40 * 16 * 4)


@pytest.mark.parametrize(
    ("has_metal", "device", "mode", "task", "expected"),
    [
        (True, mx.gpu, "", "w2d2.5", True),
        (False, mx.gpu, "", "w2d2.5", False),
        (True, mx.cpu, "", "w2d2.5", False),
        (True, mx.gpu, "off", "w2d2.5", False),
        (True, mx.gpu, "watched", "w2d2.5", False),
    ],
)
def test_when_metal_is_used(file, monkeypatch, has_metal, device, mode, task, expected):
    fake = SimpleNamespace(
        metal=SimpleNamespace(is_available=lambda: has_metal),
        default_device=lambda: SimpleNamespace(type=device),
        gpu=mx.gpu,
    )
    monkeypatch.setattr(metal, "mx", fake)
    monkeypatch.setattr(metal, "mode", lambda: mode)
    assert metal.uses_metal(file, task) is expected
    file.write_text(make_stub(TEXT, filename="two.metal"))
    assert not metal.uses_metal(file, task)
