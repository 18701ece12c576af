"""MLX's own kernels, from the headers of the installed wheel, run correctly and without a complaint."""

import re
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from metal_host import MetalKernelError, metal_kernel

KERNELS = Path(mx.__file__).parent / "include/mlx/backend/metal/kernels"
RANDOM = np.random.default_rng(3)
PLACE = "uint gid = threadgroup_position_in_grid.x, lid = thread_position_in_threadgroup.x;\n"
LANE = "thread_index_in_simdgroup, simdgroup_index_in_threadgroup"


OURS = ("utils.h", "bf16.h", "bf16_math.h", "complex.h", "logging.h")  # metal_host has its own versions of them


def header(*names: str, mutate: Callable[[str], str] = str, **constants: str) -> str:
    """The texts of headers, with what they include; function constants get a value, or are false."""
    text = mutate("\n".join(_with_included(names, set())))
    for constant, value in constants.items():
        text = re.sub(rf"(constant \w+ {constant}) \[\[function_constant\(\d+\)\]\];", rf"\1 = {value};", text)
    text = re.sub(r"(constant \w+ \w+)\s+\[\[function_constant\(\d+\)\]\];", r"\1 = 0;", text)
    text = re.sub(
        r"template <typename T>\nstruct pointer_element<(device|constant|threadgroup) T\*> \{[^}]*\};", "", text
    )  # one is enough
    return re.sub(r"\[\[function_constant\(\w+\)\]\]|,\s*function_constant\(\w+\)", "", text)


def _with_included(names, seen):
    for name in names:
        if name in seen or name in OURS:
            continue
        seen.add(name)
        text = (KERNELS / name).read_text(encoding="utf-8")
        yield from _with_included(re.findall(r'(?m)^#include "mlx/backend/metal/kernels/(.*)"', text), seen)
        yield re.sub(r'(?m)^#include "mlx/.*$', "", text)


def run(name, source, head, inputs, shape, grid, threadgroup, **more):
    kernel = metal_kernel(name, list(inputs), ["out"], source, head)
    arrays = [x if isinstance(x, mx.array) else mx.array(x) for x in inputs.values()]
    sizes = {"output_shapes": [shape], "output_dtypes": [mx.float32], "grid": grid, "threadgroup": threadgroup}
    return np.array(kernel(inputs=arrays, **sizes, **more)[0])


def softmax(kernel, mutate=str, size=250, threads=64):
    x = RANDOM.standard_normal((3, size)).astype(np.float32)
    looped = ", threads_per_threadgroup.x" if kernel.endswith("looped") else ""
    call = f"{PLACE}{kernel}<float>(x, out, size, gid, lid{looped}, {LANE});"
    head = header("defines.h", "softmax.h", mutate=mutate)
    out = run(kernel, call, head, {"x": x, "size": size}, x.shape, (3 * threads, 1, 1), (threads, 1, 1))
    expected = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, expected / expected.sum(1, keepdims=True), rtol=1e-5)


def logsumexp(kernel, mutate=str, size=250, threads=64):
    x = RANDOM.standard_normal((3, size)).astype(np.float32)
    looped = ", threads_per_threadgroup.x" if kernel.endswith("looped") else ""
    call = f"{PLACE}{kernel}<float, float, 4>(x, out, size, gid, lid{looped}, {LANE});"
    head = header("defines.h", "logsumexp.h", mutate=mutate)
    out = run(kernel, call, head, {"x": x, "size": size}, (3,), (3 * threads, 1, 1), (threads, 1, 1))
    np.testing.assert_allclose(out, np.log(np.exp(x).sum(1)), rtol=1e-5)


def sdpa_vector(kernel, mutate=str, causal="false"):
    heads, kv_heads, length, keys, width = 4, 2, 3, 70, 64
    shapes = ((heads, length, width), (kv_heads, keys, width), (kv_heads, keys, width))
    q, k, v = (RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes)
    strides = {"kh": keys * width, "ks": width, "vh": keys * width, "vs": width}
    numbers = {"gqa": heads // kv_heads, "n": keys} | {n: mx.array(s, mx.uint64) for n, s in strides.items()}
    call = (
        f"{kernel}<float, 64>(q, k, v, out, gqa, n, kh, ks, vh, vs, scale, nullptr, nullptr,"
        " gqa, gqa, gqa, nullptr, gqa,"
        " threadgroup_position_in_grid, threadgroups_per_grid,"
        " simdgroup_index_in_threadgroup, thread_index_in_simdgroup);"
    )
    head = header("sdpa_vector.h", mutate=mutate, do_causal=causal)
    inputs = {"q": q, "k": k, "v": v, **numbers, "scale": 0.125}
    out = run("sdpa", call, head, inputs, q.shape, (heads * 1024, length, 1), (1024, 1, 1))
    scores = q @ np.repeat(k, 2, 0).transpose(0, 2, 1) * 0.125
    if causal == "true":
        scores = np.where(np.arange(keys) <= np.arange(length)[:, None] + keys - length, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(out, weights / weights.sum(-1, keepdims=True) @ np.repeat(v, 2, 0), atol=2e-6)


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    monkeypatch.setenv("METAL_HOST", "check")


@pytest.fixture(params=["forward", "backward", "5"])
def order(request, monkeypatch):
    monkeypatch.setenv("METAL_HOST_ORDER", request.param)


RUNS = {
    "softmax_single_row": (softmax, {}),
    "softmax_looped": (softmax, {"size": 5000, "threads": 1024}),
    "logsumexp": (logsumexp, {}),
    "logsumexp_looped": (logsumexp, {"size": 5000, "threads": 1024}),
    "sdpa_vector": (sdpa_vector, {}),
}


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("kernel", RUNS)
def test_kernel(kernel):
    runner, options = RUNS[kernel]
    runner(kernel, **options)


@pytest.mark.usefixtures("order")
def test_causal_attention():
    sdpa_vector("sdpa_vector", causal="true")


def barriers(kernel):
    """Return the places of the barriers of one kernel in its header."""
    text = header("defines.h", "softmax.h" if "softmax" in kernel else f"{kernel.removesuffix('_looped')}.h")
    start = text.index(f"void {kernel}(")
    end = text.find("template <", start)
    found = re.findall(r"\w+_barrier\(mem_flags::mem_threadgroup\);", text[start : end if end > 0 else len(text)])
    return len(found)


def without_barrier(kernel, number):
    def mutate(text):
        at = text.index(f"void {kernel}(")
        for _ in range(number + 1):
            at = text.index("_barrier(mem_flags::mem_threadgroup);", at + 1)
        start = text.rindex("\n", 0, at)
        return text[:start] + text[text.index("\n", at) :]

    return mutate


@pytest.mark.parametrize(("kernel", "number"), [(k, n) for k in RUNS for n in range(barriers(k))])
def test_dropped_barrier_is_found(kernel, number):
    runner, options = RUNS[kernel]
    with pytest.raises(MetalKernelError) as found:
        runner(kernel, without_barrier(kernel, number), **options)
    assert found.value.kind in ("race", "unwritten")


# Both are named and not used: one is not in the wheel, of the other metal_host has nothing.
MISSING = "template <int BM, class... A> bool schedule_row_tile(const A&...) { return false; }\n"
MISSING += "struct complex64_t { float real, imag; complex64_t(float r, float i = 0) : real(r), imag(i) {} };\n"


def quantized(mutate=str):
    return MISSING + header("quantized_utils.h", "steel/gemm/gemm.h", "quantized.h", mutate=mutate)


@pytest.mark.usefixtures("order")
def test_quantized_matvec():
    rows, columns = 32, 512
    w, scales, biases = mx.quantize(mx.array(RANDOM.standard_normal((rows, columns)).astype(np.float32)), 64, 4)
    x = mx.array(RANDOM.standard_normal(columns).astype(np.float32))
    call = (
        "affine_qmv_fast<float, 64, 4, false>(w, scales, biases, x, out, columns, rows, columns, "
        "nullptr, nullptr, columns, "
        "nullptr, nullptr, nullptr, nullptr, threadgroup_position_in_grid, simdgroup_index_in_threadgroup, "
        "thread_index_in_simdgroup);"
    )
    inputs = {"w": w, "scales": scales, "biases": biases, "x": x, "columns": columns, "rows": rows}
    out = run("qmv", call, quantized(), inputs, (rows,), (32, 2 * rows // 8, 1), (32, 2, 1))
    np.testing.assert_allclose(
        out, np.array(mx.quantized_matmul(x[None], w, scales, biases, True, 64, 4))[0], atol=1e-4
    )


def quantized_matmul(mutate=str, m=40, n=64, k=64):
    """Tiles in threadgroup memory, products of 8 x 8 matrices; the last tile of x is not full."""
    w, scales, biases = mx.quantize(mx.array(RANDOM.standard_normal((n, k)).astype(np.float32)), 64, 4)
    x = RANDOM.standard_normal((m, k)).astype(np.float32)
    call = (
        "affine_qmm_t<float, 64, 4, true, false>(w, scales, biases, x, out, k, n, m, k, "
        "nullptr, nullptr, k, nullptr, nullptr, nullptr, nullptr, "
        f"threadgroup_position_in_grid, thread_index_in_threadgroup, {LANE.split(', ')[1]}, {LANE.split(', ')[0]});"
    )
    inputs = {"w": w, "scales": scales, "biases": biases, "x": x, "k": k, "n": n, "m": m}
    out = run("qmm", call, quantized(mutate), inputs, (m, n), (32 * n // 32, 2 * -(-m // 32), 2), (32, 2, 2))
    np.testing.assert_allclose(out, x @ np.array(mx.dequantize(w, scales, biases, 64, 4)).T, atol=1e-4)


@pytest.mark.usefixtures("order")
def test_quantized_matmul():
    quantized_matmul()


@pytest.mark.parametrize(
    "number", [2, 3, 6, 7]
)  # those that these sizes come to: around loads of the two kinds of tiles
def test_dropped_barrier_of_the_product_is_found(number):
    with pytest.raises(MetalKernelError) as found:
        quantized_matmul(without_barrier("qmm_t_impl", number))
    assert found.value.kind in ("race", "unwritten")
