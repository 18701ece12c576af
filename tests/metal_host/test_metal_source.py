"""The rewriter of Metal source: what it changes, and that it takes whatever it is given."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metal_host.source import rewrite
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
    assert rewrite(source) == CASES[source]


WORDS = """threadgroup constant const device float half vec<T, 4> < > [ [[ ]] ] ( ) { } ; , * &
= 1.0 .5 2h 0x1p3 'a' " '
// /* */ # a x typename :: unsigned int #include <metal_stdlib>"""
PIECES = st.sampled_from([*WORDS.split(), "\n", "\\\n", " "])


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=30).map(" ".join) | st.text(max_size=40))
def test_any_text_is_taken_and_keeps_its_lines(source):
    assert "".join(token.text for token in tokenize(source)) == source
    assert rewrite(source).count("\n") == source.count("\n")
