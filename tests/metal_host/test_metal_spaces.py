"""Errors about address spaces that Apple's compiler reports are found by clang, or without it by tokens."""

from pathlib import Path

import mlx.core as mx
import pytest
from broken_kernels import X
from metal_idioms import IDIOMS

from metal_host import MetalCompileError, metal_kernel
from metal_host.pointers import mixed_pointers
from metal_host.scopes import FILE, KERNEL
from metal_host.toolchain import recent_clang

TILE = "threadgroup float tile[64];\ntile[0] = x[0];\n"
FILL = "void fill(threadgroup float* p) { p[0] = 1; }\n"
GET = "template <typename T> T get(const device T* p, uint i) { return p[i]; }\n"
FIRST = "template <typename T> struct First { const device T* from; T get() const { return from[0]; } };\n"
LEVELS = "struct alignas(16) Levels {{ uint n[4]; uint level(uint i) const{} {{ return n[i]; }} }};\n"
OF_DEVICE = "const device Levels* levels = (const device Levels*)x;\n"

MIXED = {  # body, header, and the types in the message
    "threadgroup_to_device": (TILE + "device float* p = tile;\nout[0] = p[0];", "", ("device float *", "threadgroup")),
    "device_to_threadgroup": ("threadgroup float* p = out;\np[0] = 1;", "", ("threadgroup float *", "device float *")),
    "own_to_device": (
        "float own[4] = {};\ndevice float* p = own;\nout[0] = p[0];",
        "",
        ("device float *", "float[4]"),
    ),
    "device_to_own": ("thread float* p = out;\np[0] = 1;", "", ("float *", "device float *")),
    "template_to_own": ("thread T* p = out;\np[0] = 1;", "", ("float *", "device float *")),
    "assigned": (
        "const device float* p = x;\n" + TILE + "p = tile;\nout[0] = p[0];",
        "",
        ("device float", "threadgr"),
    ),
    "argument": ("fill(out);", FILL, ("fill", "device", "threadgroup")),
    "template_argument": (TILE + "out[0] = get(tile, 0);", GET, ("get", "device", "threadgroup")),
    "cast": ("out[0] = ((threadgroup float4*)x)[0].x;", "", ("device float", "threadgroup float4 *")),
    "cast_of_tile": (
        TILE + "out[0] = ((device half2*)tile)[0].x;",
        "",
        ("cast of 'threadgroup float[64]' to 'device",),
    ),
    "reference": ("thread const float& first = x[0];\nout[0] = first;", "", ("const float", "device float")),
    "of_template": (
        TILE + "First<float> f;\nf.from = tile;\nout[0] = f.get();",
        FIRST,
        ("device float", "threadgroup"),
    ),
    "automatic": ("device float v = x[0];\nout[0] = v;", "", ("automatic variable", "address space")),
    "constant_to_device": ("const device int* p = x_shape;\nout[0] = p[0];", "", ("device int", "constant int")),
    "atomic_of_own": (
        "atomic<int> n;\natomic_fetch_add_explicit(&n, 1, memory_order_relaxed);\nout[0] = 0;",
        "",
        ("atomic_fetch_add_explicit", "device"),
    ),
    "method": (OF_DEVICE + "out[0] = levels->level(1);", LEVELS.format(""), ("is in device memory: copy the object",)),
    "method_of_reference": (
        OF_DEVICE + "const device Levels& of_row = levels[1];\nout[0] = of_row.level(1);",
        LEVELS.format(""),
        ("is in device memory: copy the object",),
    ),
    "method_of_tile": (
        "threadgroup Levels tile[2];\ntile[0].n[1] = 1;\nout[0] = tile[0].level(1);",
        LEVELS.format(""),
        ("is in threadgroup memory: copy the object",),
    ),
    "member": (
        OF_DEVICE + "const thread uint* n = levels->n;\nout[0] = n[1];",
        LEVELS.format(""),
        ("uint *", "device uint[4]"),
    ),
}
RIGHT = {
    "constant": ("constant float* w = WEIGHTS;\nout[0] = w[1];", "constant float WEIGHTS[2] = {1, 2};\n"),
    "struct": ("Pair p = ((const device Pair*)x)[0];\nout[0] = p.a + p.b;", "struct Pair { float a, b; };\n"),
    "casts": (
        TILE + "const threadgroup uint* p = (const threadgroup uint*)tile;\n"
        "out[0] = *(device float*)(x + 1) + ((const device float2*)(x + 2 * p[0]))->y + ((const device float*)x - x);",
        "",
    ),
    "auto": (TILE + "auto p = &tile[0];\nauto q = x + 1;\nout[0] = *p + *q;", ""),
    "null": ("const device float* p = nullptr;\nout[0] = p ? p[0] : get(x, 0);", GET),
    "copied": (OF_DEVICE + "const Levels own = levels[1];\nout[0] = own.level(1);", LEVELS.format("")),
    "method_of_device": (OF_DEVICE + "out[0] = levels->level(1);", LEVELS.format(" device")),
    "method_of_thread": (OF_DEVICE + "Levels own = levels[1];\nout[0] = own.level(1);", LEVELS.format(" thread")),
    "overloaded": (TILE + "fill(tile);\nfill(out);", FILL + "void fill(device float* p) { p[0] = 1; }\n"),
}


BY_TOKENS = {  # messages without clang
    "threadgroup_to_device": "'tile' is in threadgroup memory: a pointer to it is declared threadgroup, not device",
    "device_to_threadgroup": "'out' is in device memory: a pointer to it is declared device, not threadgroup",
    "own_to_device": "'own' is in thread memory: a pointer to it is declared thread, not device",
    "device_to_own": "'out' is in device memory: a pointer to it is declared device, not thread",
    "template_to_own": "'out' is in device memory: a pointer to it is declared device, not thread",
    "assigned": "'tile' is in threadgroup memory: a pointer to it is declared threadgroup, not device",
    "argument": "'out' is in device memory, and 'fill' takes a threadgroup pointer",
    "template_argument": "'tile' is in threadgroup memory, and 'get' takes a device pointer",
    "cast": "'x' is in device memory: a pointer to it is declared device, not threadgroup",
    "cast_of_tile": "'tile' is in threadgroup memory: a pointer to it is declared threadgroup, not device",
    "reference": "'x' is in device memory: a reference to it is declared device, not thread",
    "automatic": "variable 'v' is declared device: a kernel reaches device memory only through pointers",
    "constant_to_device": "'x_shape' is in constant memory: a pointer to it is declared constant, not device",
}
NOT_BY_TOKENS = [name for name in MIXED if name not in BY_TOKENS]


@pytest.fixture
def no_clang(monkeypatch):
    monkeypatch.setenv("METAL_HOST_CLANG", "")


@pytest.mark.usefixtures("no_clang")
@pytest.mark.parametrize("name", BY_TOKENS)
def test_without_clang_names_are_looked_at(name):
    source, header, _ = MIXED[name]
    with pytest.raises(MetalCompileError, match=rf"{name}\.metal:\d+: ") as found:
        compile_only(name, source, header)
    assert BY_TOKENS[name] in str(found.value)


@pytest.mark.usefixtures("no_clang")
@pytest.mark.parametrize("name", [*RIGHT, *NOT_BY_TOKENS])
def test_without_clang_what_is_not_plain_is_taken_to_be_right(name):
    source, header, *_ = (RIGHT | MIXED)[name]
    given = ["const device float* x", "const constant int* x_shape", "device float* out"]
    assert list(mixed_pointers(header, FILE)) == []
    assert list(mixed_pointers(source, KERNEL, given, header)) == []


@pytest.mark.parametrize("name", IDIOMS)
def test_idioms_mix_none(name):
    idiom = IDIOMS[name]
    given = [f"const device T* {x}" for x in idiom.inputs] + [f"const constant int* {x}_shape" for x in idiom.inputs]
    header = getattr(idiom, "header", "")
    assert list(mixed_pointers(idiom.source, KERNEL, [*given, "device T* out"], header)) == []


def test_mlx_mixes_none():
    """All of MLX's headers and kernels pass."""
    files = [*Path(mx.__file__).parent.rglob("*.metal"), *Path(mx.__file__).parent.rglob("*.h")]
    metal = [text for file in files if "metal" in str(file) and "device " in (text := file.read_text())]
    assert len(metal) > 20
    for text in metal:
        assert list(mixed_pointers(text, FILE)) == []


@pytest.fixture
def clang():
    if recent_clang() is None:
        pytest.skip("no clang of version 16 or later: METAL_HOST_CLANG may name one")


def compile_only(name, source, header):
    kernel = metal_kernel(name, ["x"], ["out"], source, header)
    sizes = {"grid": (0, 1, 1), "threadgroup": (1, 1, 1), "output_shapes": [(4,)], "output_dtypes": [mx.float32]}
    kernel(inputs=[mx.array(X)], template=[("T", mx.float32)], init_value=0, **sizes)


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("name", MIXED)
def test_mixed_spaces_are_refused(name):
    source, header, words = MIXED[name]
    with pytest.raises(MetalCompileError, match=rf"{name}(\.header)?\.metal:\d+: ") as found:
        compile_only(name, source, header)
    assert all(word in str(found.value) for word in words), str(found.value)


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("name", [name for name in RIGHT if name != "overloaded"])  # which g++ and clang cannot
def test_right_spaces_are_not(name):
    compile_only(name, *RIGHT[name])
