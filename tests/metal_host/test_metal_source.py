"""The rewriter of Metal source: what it changes, and that it accepts any text."""

import random

import pytest
from metal_idioms import IDIOMS

from metal_host.pointers import mixed_pointers
from metal_host.rewrite import rewrite
from metal_host.rules import violations
from metal_host.scopes import FILE, KERNEL, scopes
from metal_host.tokens import tokenize

CASES = {
    "float x = 1.0, y = .5, z = 1e-3, w = 2.;": "float x = 1.0f, y = .5f, z = 1e-3f, w = 2.f;",
    "1.0f 1.5h 2H 3.0bf 0x1p3 0xE": "1.0f half(1.5f) half(2.0f) bfloat(3.0f) 0x1p3f 0xE",
    "1'000 1.0F v.x1": "1'000 1.0F v.x1",
    'f("1.0 threadgroup", \'"\'); // 1.0': 'f("1.0 threadgroup", \'"\'); // 1.0',
    "threadgroup float a[N * 2];": "MSL_THREADGROUP(a, float[N*2]) ",
    "threadgroup float a[4][8],\n  b[2];": "MSL_THREADGROUP(a, float[4][8]) MSL_THREADGROUP(b, float[2]) \n",
    "threadgroup atomic<int> n;": "MSL_THREADGROUP(n, atomic<int>) ",
    "threadgroup metal::vec<T, 4> v[8];": "MSL_THREADGROUP(v, metal::vec<T, 4>[8]) ",
    "threadgroup unsigned int u[8];": "MSL_THREADGROUP(u, unsigned int[8]) ",
    "threadgroup typename S::T a[2];": "MSL_THREADGROUP(a, typename S::T[2]) ",
    "threadgroup alignas(16) float a[8];": "MSL_THREADGROUP(a, float[8]) ",
    "alignas(16) float a[8];": "alignas(16) float a[8];",
    "threadgroup float* p = a;": "threadgroup float* p = a;",
    "void f(threadgroup float* p, threadgroup T& t);": "void f(threadgroup float* p, threadgroup T& t);",
    "(threadgroup float4*)p": "(threadgroup float4*)p",
    "constant float& w": "const float& w",
    "const constant float* w": "const constant float* w",
    "constant const int* w": "constant const int* w",
    "constant float w[2] = {1};": "constant float w[2] = {1};",
    "constant array<int, 4>& w": "const array<int, 4>& w",
    "uint i [[thread_position_in_grid]], j": "uint i , j",
    "a[b[0]]": "a[b[0]]",
    "#include <metal_stdlib>\n#define A 1.0\nA": "\n#define A 1.0f\nA",
    "#define D threadgroup float a[4]; \\\n  1.0\n": "#define D MSL_THREADGROUP(a, float[4])  \\\n  1.0f\n",
}


@pytest.mark.parametrize("source", CASES)
def test_rewrite(source):
    assert rewrite(source, KERNEL) == CASES[source]


# A thread's own arrays get redzones if they are used through pointers.
REDZONED = "msl_redzoned<float[4]> msl_redzoned_a{}; const msl_watched<float[4]> msl_watched_a(msl_redzoned_a, "
PRIVATE = {
    "float a[4]; a[0] = b;": None,
    "float a[4] = {1}; f(a);": REDZONED.format(" = {{}, {1}, {}}"),
    "float a[4] = {.5,  // half\n 1.0}; f(a);": REDZONED.format(" = {{}, {.5f,   1.0f}, {}}"),
    "thread float a[4]; p = &a[1];": REDZONED.format(""),
    "float a[4]; x = y && a[1];": None,
    "float v = 0, a[4]; f(a + 1);": "float v= 0; " + REDZONED.format(""),
    "float a[2][4]; f(a[1]);": "msl_redzoned<float[2][4]> msl_redzoned_a;",
    "const float a[4] = {}; f(a);": None,
    "float a[] = {1, 2}; f(a);": None,
    "float a[n > 2 ? 2 : 1]; f(a);": None,
    "return a[1];": None,
    "struct S { float a[4]; }; f(a);": None,
}


@pytest.mark.parametrize("source", PRIVATE)
def test_private_arrays_get_redzones(source):
    expected = PRIVATE[source]
    found = rewrite(source, KERNEL)
    assert found == source if expected is None else found.startswith(expected)
    assert found.count("\n") == source.count("\n")


BODY, HEADER = KERNEL, FILE
FORBIDDEN = {
    ("threadgroup float a[4];", BODY): "",
    ("threadgroup float a[4];", HEADER): "threadgroup variable 'a' outside of functions",
    ("[[kernel]] void k(device float* x) {\nthreadgroup float a[4]; }", HEADER): "",
    ("template <int N> kernel void k() { if (N) { threadgroup float a[N]; } }", HEADER): "",
    (
        "namespace n { void f(threadgroup float* p) { } threadgroup int a; }",
        HEADER,
    ): "variable 'a' outside of functions",
    ("void f() { threadgroup float a[4], b; }", HEADER): "threadgroup variable 'a' in a function that is not a kernel",
    ("struct S { threadgroup float a[4]; };", HEADER): "threadgroup variable 'a' in a type",
    ("struct S { threadgroup float* a; threadgroup T& b; };", HEADER): "",
    ("template <int N = 4> struct S { threadgroup float a[N]; };", HEADER): "threadgroup variable 'a' in a type",
    ("struct S s = {1, {2}};\nauto v = S{1};\nthreadgroup float a[4];", BODY): "",
    ("threadgroup float a[2] = {1, 2};", BODY): "threadgroup variable 'a' with an initial value",
    ("float* p = x;", BODY): "address space: write device, constant, threadgroup or thread before float*",
    ("for (const half4 *p = x; ; ) {}", BODY): "pointer without an address space",
    ("y = *(float*)x;", BODY): "pointer without an address space",
    ("void f(const int& n) {}", HEADER): "reference without an address space",
    ("struct S { int n; };\nint f(S& s) { return s.n; }", HEADER): "2: reference without an address space",
    ("struct alignas(16) S { int n; };\nint f(S& s) { return s.n; }", HEADER): "2: reference without an address space",
    ("void f(thread int& n, device const uint32_t* p, float4 const thread& v, constant S& s) {}", HEADER): "",
    ("out[i] = float(a) * b & c; auto p = x; T* q; float4 v[2]; as_type<float>(y) * 2;", BODY): "",
    ("if (i < 3) {\n    out[i] = (x[i];\n}", BODY): "3: '}' has no partner",
    ("for (;;) {\n    if (i) {\n        out[i] = 1;\n}", BODY): "1: '{' is never closed",
    ("#if A\nif (i) {\n#else\n{\n#endif\n}", BODY): "",
    ("out[i] = x[i]; // (\nconst char c = '{'; /* [ */", BODY): "",
    (
        "template <typename T, uint n>\nT f(const T* p, uint i) { return p[i]; }",
        HEADER,
    ): "2: pointer without an address",
    ("template <class A = float>\nvoid f(thread A& a) { A* b = &a; }", HEADER): "2: pointer without an address space",
    ("template <int b> struct W { int n; };\nint f(const W<4>& w) { return w.n; }", HEADER): "2: reference without an",
    ("template <typename T> struct is_pointer<device T*> {}; using P = float_t<float*>;", HEADER): "",
    ("#define F float* p; threadgroup int a = 1\n// float* p\n", BODY): "",
}


@pytest.mark.parametrize(("source", "outermost"), FORBIDDEN)
def test_what_metal_forbids_is_found(source, outermost):
    found = "\n".join(f"{line}: {said}" for line, said in violations(source, outermost))
    assert FORBIDDEN[source, outermost] in found
    assert bool(found) == bool(FORBIDDEN[source, outermost])


WORDS = """threadgroup constant const device float half vec<T, 4> < > [ [[ ]] ] ( ) { } ; , * & && = 1.0 .5 2h 0x1p3
'a' " ' // /* */ # \\ a x typename :: unsigned int struct namespace kernel void template return if else for static
#include <metal_stdlib> #define float4 float* += a[4] a[i] {1}"""
LETTERS = "".join(map(chr, range(32, 127))) + "\n\t\\\"'é日\0"


def _texts(seed: int):
    chance = random.Random(seed)
    yield " ".join(chance.choices([*WORDS.split(), "\n", "\\\n", " "], k=chance.randrange(40)))
    yield "".join(chance.choices(LETTERS, k=chance.randrange(60)))
    tokens = [token.text for token in tokenize(chance.choice(list(IDIOMS.values())).source)]
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(tokens))
        tokens[at] = chance.choice(
            ["", tokens[at] * 2, *chance.choices(tokens, k=2), *chance.choices(WORDS.split(), k=2)]
        )
    yield "".join(tokens)


@pytest.mark.parametrize("outermost", [KERNEL, FILE])
def test_any_text_is_taken_and_keeps_its_lines(outermost):
    for seed in range(500):
        for source in _texts(seed):
            tokens = tokenize(source)
            assert "".join(token.text for token in tokens) == source
            assert len(scopes(tokens, outermost)) == len(tokens)
            assert rewrite(source, outermost).count("\n") == source.count("\n"), source
            for line, said in [*violations(source, outermost), *mixed_pointers(source, outermost, [], source)]:
                assert 1 <= line <= source.count("\n") + 1
                assert said
