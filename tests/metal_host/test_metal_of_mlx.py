"""MLX's own kernels, as their headers lie in the installed wheel: right, and not complained of."""

import re
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from metal_host import metal_kernel

KERNELS = Path(mx.__file__).parent / "include/mlx/backend/metal/kernels"
RANDOM = np.random.default_rng(3)
PLACE = "uint gid = threadgroup_position_in_grid.x, lid = thread_position_in_threadgroup.x;\n"
LANE = "thread_index_in_simdgroup, simdgroup_index_in_threadgroup"


OURS = ("utils.h", "bf16.h", "bf16_math.h", "complex.h", "logging.h")  # of which metal_host has what a kernel may use


def header(*names: str, **constants: str) -> str:
    """The texts of headers, with what they include; function constants get a value, or are false."""
    text = "\n".join(_with_included(names, set()))
    for constant, value in constants.items():
        text = re.sub(rf"(constant \w+ {constant}) \[\[function_constant\(\d+\)\]\];", rf"\1 = {value};", text)
    text = re.sub(r"(constant \w+ \w+)\s+\[\[function_constant\(\d+\)\]\];", r"\1 = 0;", text)
    text = re.sub(r"template <typename T>\nstruct pointer_element<(device|constant|threadgroup) T\*> \{[^}]*\};", "", text)  # one is enough
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


@pytest.fixture(autouse=True, params=["forward", "backward", "5"])
def checked(request, monkeypatch):
    monkeypatch.setenv("METAL_HOST", "check")
    monkeypatch.setenv("METAL_HOST_ORDER", request.param)


@pytest.mark.parametrize(("kernel", "size"), [("softmax_single_row", 250), ("softmax_looped", 5000)])
def test_softmax(kernel, size):
    x = RANDOM.standard_normal((3, size)).astype(np.float32)
    looped, threads = (", threads_per_threadgroup.x", 1024) if kernel.endswith("looped") else ("", 64)
    call = f"{kernel}<float>(x, out, size, gid, lid{looped}, {LANE});"
    out = run(kernel, PLACE + call, header("defines.h", "softmax.h"), {"x": x, "size": size}, x.shape, (3 * threads, 1, 1), (threads, 1, 1))
    expected = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, expected / expected.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(("kernel", "size"), [("logsumexp", 250), ("logsumexp_looped", 5000)])
def test_logsumexp(kernel, size):
    x = RANDOM.standard_normal((3, size)).astype(np.float32)
    looped, threads = (", threads_per_threadgroup.x", 1024) if kernel.endswith("looped") else ("", 64)
    call = f"{kernel}<float, float, 4>(x, out, size, gid, lid{looped}, {LANE});"
    out = run(kernel, PLACE + call, header("defines.h", "logsumexp.h"), {"x": x, "size": size}, (3,), (3 * threads, 1, 1), (threads, 1, 1))
    np.testing.assert_allclose(out, np.log(np.exp(x).sum(1)), rtol=1e-5)


@pytest.mark.parametrize("causal", ["false", "true"])
def test_sdpa_vector(causal):
    heads, kv_heads, length, keys, width = 4, 2, 3, 70, 64
    q, k, v = (RANDOM.standard_normal((h, n, width)).astype(np.float32) for h, n in ((heads, length), (kv_heads, keys), (kv_heads, keys)))
    numbers = {"gqa": heads // kv_heads, "n": keys} | {
        name: mx.array(stride, mx.uint64) for name, stride in (("kh", keys * width), ("ks", width), ("vh", keys * width), ("vs", width))
    }
    call = (
        "sdpa_vector<float, 64>(q, k, v, out, gqa, n, kh, ks, vh, vs, scale, nullptr, nullptr, gqa, gqa, gqa, nullptr, gqa, "
        "threadgroup_position_in_grid, threadgroups_per_grid, simdgroup_index_in_threadgroup, thread_index_in_simdgroup);"
    )
    inputs = {"q": q, "k": k, "v": v, **numbers, "scale": 0.125}
    out = run("sdpa", call, header("sdpa_vector.h", do_causal=causal), inputs, q.shape, (heads * 1024, length, 1), (1024, 1, 1))
    scores = q @ np.repeat(k, 2, 0).transpose(0, 2, 1) * 0.125
    if causal == "true":
        scores = np.where(np.arange(keys) <= np.arange(length)[:, None] + keys - length, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(out, weights / weights.sum(-1, keepdims=True) @ np.repeat(v, 2, 0), atol=2e-6)


def test_quantized_matvec():
    rows, columns = 32, 512
    w, scales, biases = mx.quantize(mx.array(RANDOM.standard_normal((rows, columns)).astype(np.float32)), 64, 4)
    x = mx.array(RANDOM.standard_normal(columns).astype(np.float32))
    call = (
        "affine_qmv_fast<float, 64, 4, false>(w, scales, biases, x, out, columns, rows, columns, nullptr, nullptr, columns, "
        "nullptr, nullptr, nullptr, nullptr, threadgroup_position_in_grid, simdgroup_index_in_threadgroup, "
        "thread_index_in_simdgroup);"
    )
    missing = "template <int BM, class... A> bool schedule_row_tile(const A&...) { return false; }\n"  # unused, not in the wheel
    missing += "struct complex64_t { float real, imag; complex64_t(float r, float i = 0) : real(r), imag(i) {} };\n"
    head = missing + header("quantized_utils.h", "steel/gemm/gemm.h", "quantized.h")
    inputs = {"w": w, "scales": scales, "biases": biases, "x": x, "columns": columns, "rows": rows}
    out = run("qmv", call, head, inputs, (rows,), (32, 2 * rows // 8, 1), (32, 2, 1))
    np.testing.assert_allclose(out, np.array(mx.quantized_matmul(x[None], w, scales, biases, True, 64, 4))[0], atol=1e-4)
