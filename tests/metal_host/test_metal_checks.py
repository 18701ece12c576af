"""Each kind of mistake is found and named: METAL_HOST_WRITE=1 writes the golden messages anew."""

import os
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from broken_kernels import BROKEN, REFUSED, REFUSED_HEADERS, Broken, X

from metal_host import MetalCompileError, MetalKernelError, metal_kernel
from metal_host.diagnostics import explain_errors

GOLDEN = Path(__file__).with_name("messages.txt")


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    monkeypatch.setenv("METAL_HOST", "check")
    monkeypatch.setenv("METAL_HOST_SECONDS", "60")  # a loop is found by its steps, on a slow processor, too


def run(name, broken, **more):
    kernel = metal_kernel(name, list(broken.inputs), ["out"], broken.source, broken.header, **broken.options)
    inputs = [mx.array(x) if isinstance(x, np.ndarray) else x for x in broken.inputs.values()]
    grid, threadgroup = (broken.n, 1, 1), (broken.group, 1, 1)
    sizes = {"output_shapes": [(broken.out,)], "output_dtypes": [mx.float32]}
    return kernel(inputs=inputs, grid=grid, threadgroup=threadgroup, init_value=broken.init_value, **sizes, **more)


def golden():
    parts = GOLDEN.read_text(encoding="utf-8").split("\n\n") if GOLDEN.exists() else []
    return dict(part.strip().split("\n", 1) for part in parts if part.strip())


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernel_is_named(name, monkeypatch):
    if BROKEN[name].kind == "time":
        monkeypatch.setenv("METAL_HOST_SECONDS", "2")
    with pytest.raises(MetalKernelError) as found:
        run(name, BROKEN[name])
    assert found.value.kind == BROKEN[name].kind, str(found.value)
    if os.environ.get("METAL_HOST_WRITE"):
        messages = golden() | {f"# {name}": str(found.value)}
        ordered = [f"# {key}" for key in BROKEN if f"# {key}" in messages]
        GOLDEN.write_text("\n\n".join(f"{key}\n{messages[key]}" for key in ordered) + "\n", encoding="utf-8")
    expected = golden()[f"# {name}"]
    said = str(found.value).replace("-1431655766", "-16843010")  # what clang puts where nothing was set, and g++
    if name == "too_deep":  # compilers differ in which of the function's lines first touches its stack
        assert said.splitlines()[0] == expected.splitlines()[0]
    else:
        assert said == expected


UNSET_IS_RIGHT = {  # what nobody uses may be unset, and what was handed in may look like it
    "part_of_vector": "float4 v;\nfor (uint k = 0; k < 1 + i % 3; k++) v[k] = x[i];\nv = 2 * v + 1;\nout[i] = v.x;",
    "of_other_lanes": "float own[2];\nfor (uint k = 0; k < i % 2; k++) own[k] = x[i];\n"
    "out[i] = simd_shuffle(own[0], 2 * (i % 16) + 1);",
    "branch": "float v;\nif (i < 10) v = x[i];\nout[i] = i < 10 ? v : 0;",
    "copied": "out[i] = x[i];",
    "lowest": "bfloat4 v = numeric_limits<bfloat>::lowest();\nout[i] = max(v / bfloat(2), v).x;",
}


@pytest.mark.parametrize("name", UNSET_IS_RIGHT)
def test_what_nobody_uses_may_be_unset(name):
    x = np.full(128, 0xFEFEFEFE, np.uint32).view(np.float32) if name == "copied" else X
    source = "uint i = thread_position_in_grid.x;\n" + UNSET_IS_RIGHT[name]
    assert len(run(name, Broken("", source, inputs={"x": x}))) == 1


@pytest.mark.parametrize(
    ("reads", "said"), [("x[i * x_strides[0] + 5]", "x[5], which lies"), ("x[i * 8 + 8]", "x[32]; ")]
)
def test_what_a_view_leaves_out_is_not_read(reads, said):
    """Between its rows is memory that belongs to somebody, and behind the last one as well."""
    view = mx.arange(64).reshape(8, 8)[1:5, 1:6]
    kernel = metal_kernel("gap", ["x"], ["out"], f"uint i = thread_position_in_grid.x;\nout[i] = {reads};", "", False)
    sizes = {"grid": (4, 1, 1), "threadgroup": (4, 1, 1), "output_shapes": [(4,)], "output_dtypes": [mx.int32]}
    with pytest.raises(MetalKernelError, match="out of bounds: a read of ") as found:
        kernel(inputs=[view], **sizes)
    assert said in str(found.value)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_source_is_named(name):
    source, said = REFUSED[name]
    kernel = metal_kernel(name, ["x"], ["out"], source, REFUSED_HEADERS.get(name, ""))
    with pytest.raises(MetalCompileError) as found:
        kernel(
            inputs=[mx.array(X)],
            grid=(1, 1, 1),
            threadgroup=(1, 1, 1),
            output_shapes=[(4,)],
            output_dtypes=[mx.float32],
        )
    message = str(found.value)
    assert any(words in message for words in said.split("|")), message
    line = 2 if name == "own_unwritten" else 1
    assert f"{name}.header.metal:1: " in message or f"{name}.metal:{line}: " in message


def test_other_words_are_plainer():
    texts = {"k.metal": "out[0] = simd_summe(T(1));\nvoid f(float* p);", "k.header.metal": ""}
    said = "k.metal:1:10: error: there are no arguments to ‘simd_summe’ that depend on a parameter [-fpermissive]\n"
    said += "k.metal:2:6: error: redefinition of ‘void f(float*)’\n"
    assert explain_errors(said, texts) == (
        "k.metal:1: 'simd_summe' was not declared in this scope\n    out[0] = simd_summe(T(1));\n"
        "k.metal:2: redefinition of 'void f(float*)' (metal_host does not tell functions apart by address spaces only)"
        "\n    void f(float* p);"
    )


def test_words_of_clang_are_understood():
    texts = {"k.metal": "uint i = 0;\nconst double d = 1;\nout[0] = twice(x);", "k.header.metal": ""}
    said = """k.metal:2:7: error: attempt to use a poisoned identifier
    2 | const double d = 1;
/p/include/msl/math.h:9:5: error: no matching function for call to 'metal::exp'
k.metal:3:10: note: in instantiation of function template specialization 'twice<float>' requested here
"""
    assert explain_errors(said, texts) == (
        "k.metal:2: Metal has no 'double'\n    const double d = 1;\n"
        "k.metal:3: no matching function for call to 'exp'\n    out[0] = twice(x);"
    )
