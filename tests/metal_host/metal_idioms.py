"""Small kernels that are right, in the words that Metal kernels use, each with what NumPy says of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from metal_bodies import (
    DEVICE_EXCHANGE,
    DOT4,
    HELPED,
    HELPERS,
    HISTOGRAM,
    MATRIX,
    NEIGHBOURS,
    ONLINE,
    POSITIONS,
    SIMD_EXCHANGE,
    TILED,
    TREE,
    TWO_LEVELS,
)

N = 100  # elements of x: no multiple of a simdgroup
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal(N).astype(np.float32)
Y = RANDOM.standard_normal(N).astype(np.float32)
I = RANDOM.integers(-1000, 1000, N).astype(np.int32)
A = RANDOM.standard_normal((24, 16)).astype(np.float32)
B = RANDOM.standard_normal((16, 40)).astype(np.float32)


@dataclass
class Idiom:
    source: str
    expected: Callable[[], Any]
    inputs: dict[str, Any] = field(default_factory=lambda: {"x": X, "y": Y})
    shape: tuple[int, ...] = (N,)
    dtype: mx.Dtype = mx.float32
    grid: tuple[int, int, int] = (N, 1, 1)
    threadgroup: tuple[int, int, int] = (64, 1, 1)
    template: list[tuple[str, Any]] = field(default_factory=list)
    header: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    init_value: float | None = None
    tolerance: float = 1e-6


def each(expression: str, expected: Callable[[], Any], **more: Any) -> Idiom:
    """One thread an element."""
    return Idiom(f"uint i = thread_position_in_grid.x;\nout[i] = {expression};", expected, **more)


def lanes(body: str, expected: Callable[[], Any], **more: Any) -> Idiom:
    """Two simdgroups; `v` is the lane's value."""
    start = "uint i = thread_position_in_grid.x, lane = thread_index_in_simdgroup;\nfloat v = x[i];\n"
    more = {"shape": (64,), "grid": (64, 1, 1), "inputs": {"x": X[:64]}} | more
    return Idiom(start + body, expected, **more)


def rows(f: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: np.stack([f(row) for row in X[:64].reshape(2, 32)]).reshape(-1)


def as_half(x: Any) -> Any:
    return np.asarray(x, np.float16)


def as_bfloat(x: Any) -> Any:
    """Rounded to bfloat16, to nearest and ties to even, as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def groups(f: Callable[[Any], Any], size: int = 64) -> Callable[[], Any]:
    return lambda: np.concatenate([f(X[at : at + size]) for at in range(0, N, size)])


MATRIX_SHAPE: dict[str, Any] = {"shape": (24, 40), "grid": (5 * 32, 3, 1), "threadgroup": (32, 1, 1), "tolerance": 1e-5}
WORDS = RANDOM.integers(0, 1 << 32, (12, 2), dtype=np.uint64).astype(np.uint32)


def _sliding() -> Any:
    return np.convolve(X, [1, 1, 1], "same")


def _erfless_gelu() -> Any:
    return X * 0.5 * (1 + np.tanh(0.7978845608 * (X + 0.044715 * X**3)))


def _four_bits() -> Any:
    digits = (WORDS[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    return digits.reshape(12, 16).astype(np.float32) @ X[:16]


def _half_steps() -> Any:
    x, y = as_half(X), as_half(Y)
    return (x * y + x) / (y - as_half(0.1))


def _bfloat_steps() -> Any:
    x, y = as_bfloat(X), as_bfloat(Y)
    return as_bfloat(as_bfloat(as_bfloat(x * y) + x) / as_bfloat(y - as_bfloat(0.1)))


HALF_STEPS = "T p = x[i], q = y[i];\nout[i] = (p * q + p) / (q - T(0.1));"
INT = {"inputs": {"k": I}, "dtype": mx.int32}
IDIOMS: dict[str, Idiom] = {
    "saxpy": each("2.5 * x[i] + y[i]", lambda: 2.5 * X + Y),
    "gelu": each("x[i] * 0.5 * (1.0 + tanh(0.7978845608 * (x[i] + 0.044715 * pow(x[i], 3))))", _erfless_gelu),
    "silu": each("x[i] / (1.0f + metal::exp(-x[i])) * y[i]", lambda: X / (1 + np.exp(-X)) * Y),
    "maths": each(
        "sin(x[i]) + precise::cos(y[i]) + sqrt(abs(x[i])) + rsqrt(1 + y[i] * y[i]) + exp2(x[i]) + floor(y[i])",
        lambda: np.sin(X) + np.cos(Y) + np.sqrt(abs(X)) + 1 / np.sqrt(1 + Y * Y) + np.exp2(X) + np.floor(Y),
        tolerance=1e-5,
    ),
    "select": each(
        "select(y[i], clamp(x[i], -0.5, 0.5), isfinite(x[i]) && x[i] > 0)",
        lambda: np.where(X > 0, np.clip(X, -0.5, 0.5), Y),
    ),
    "integers": each(
        "(k[i] << 2) ^ (k[i] / 3) ^ popcount(uint(k[i])) ^ int(clz(uint(k[i]))) ^ abs(k[i]) % 7 ^ max(k[i], 5)",
        lambda: [
            (v << 2)
            ^ int(v / 3)
            ^ (v & 0xFFFFFFFF).bit_count()
            ^ (32 - (v & 0xFFFFFFFF).bit_length())
            ^ abs(v) % 7
            ^ max(v, 5)
            for v in I.tolist()
        ],
        **INT,
    ),
    "as_type": each("as_type<int>(as_type<float>(k[i]))", lambda: I, **INT),
    "template": Idiom(
        "uint i = thread_position_in_grid.x;\nif (FLIP) out[i] = T(x[i]) * SCALE; else out[i] = 0;",
        lambda: as_half(X) * 3,
        template=[("T", mx.float16), ("SCALE", 3), ("FLIP", True)],
        dtype=mx.float16,
    ),
    "half": Idiom(
        "uint i = thread_position_in_grid.x;\n" + HALF_STEPS,
        _half_steps,
        inputs={"x": as_half(X), "y": as_half(Y)},
        template=[("T", mx.float16)],
        dtype=mx.float16,
        tolerance=0,
    ),
    "bfloat": Idiom(
        "uint i = thread_position_in_grid.x;\n" + HALF_STEPS,
        _bfloat_steps,
        inputs={"x": mx.array(X, mx.bfloat16), "y": mx.array(Y, mx.bfloat16)},
        template=[("T", mx.bfloat16)],
        dtype=mx.bfloat16,
        tolerance=0,
    ),
    "half_literals": each("1.5h * half(x[i]) + 0.25H", lambda: as_half(1.5) * as_half(X) + as_half(0.25), tolerance=0),
    "vectors": Idiom(
        "uint i = thread_position_in_grid.x;\nfloat4 v = ((const device float4*)x)[i];\n"
        "v.xz = v.zx; v.w *= 2; v.yzw = v.yyw + float3(1, v.xy);\n((device float4*)out)[i] = v.wzyx;",
        lambda: np.stack(
            [
                _vectors()[3],
                _vectors()[2],
                _vectors()[1],
                _vectors()[0],
            ],
            -1,
        ).reshape(-1),
        grid=(N // 4, 1, 1),
    ),
    "vector_maths": Idiom(
        "uint i = thread_position_in_grid.x;\nconst device float2* p = (const device float2*)x;\nfloat2 v = p[i];\n"
        "out[2 * i] = length(v) + dot(v, float2(1, -1)) + max(v, 0.5f).y;\n"
        "out[2 * i + 1] = any(v > 1.0f) ? exp(v.yx).x : float(half2(v).x) + float(all(v < 0)) + as_type<float2>(v)[1];",
        lambda: _pairs(),
        grid=(N // 2, 1, 1),
        tolerance=1e-5,
    ),
    "vectors_of_three": Idiom(
        "threadgroup float3 v[32];\nuint i = thread_position_in_grid.x, t = thread_position_in_threadgroup.x;\n"
        "v[t] = float3(x[3 * i], x[3 * i + 1], x[3 * i + 2]);\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup);\nfloat3 w = v[31 - t], c = cross(w, float3(0, 0, 1));\n"
        "out[i] = w.x + c.y + dot(w, c);",
        lambda: np.zeros(32),
        shape=(32,),
        grid=(32, 1, 1),
        threadgroup=(32, 1, 1),
        tolerance=1e-6,
    ),
    "packed": Idiom(
        "uint i = thread_position_in_grid.x;\nconst device packed_float3* p = (const device packed_float3*)x;\n"
        "float3 v = p[i];\npacked_float3 w = packed_float3(v.z, v.xy);\nw += 1.0f;\nw[0] *= 2;\n"
        "((device packed_float3*)out)[i] = w * p[i] + packed_float3(p[i].x);",
        lambda: _packed(),
        shape=(99,),
        grid=(33, 1, 1),
    ),
    "int4": Idiom(
        "uint i = thread_position_in_grid.x;\nint4 v = ((const device int4*)k)[i];\nuchar4 c = uchar4(v & 255);\n"
        "((device int4*)out)[i] = (v >> 2) + int4(c) * int4(1, 2, 3, 4) - ~v + select(v, int4(7), v > int4(0));",
        lambda: (I >> 2) + (I & 255) * np.tile([1, 2, 3, 4], N // 4) - ~I + np.where(I > 0, 7, I),
        grid=(N // 4, 1, 1),
        **INT,
    ),
    "threadgroup_tree": Idiom(TREE, groups(lambda v: np.full(len(v), v.sum())), tolerance=1e-5),
    "two_levels": Idiom(
        TWO_LEVELS, lambda: X.sum(), {"x": X}, (1,), grid=(96, 1, 1), threadgroup=(96, 1, 1), tolerance=1e-5
    ),
    "tiled_matmul": Idiom(
        TILED, lambda: A @ B, {"a": A, "b": B}, (24, 40), grid=(40, 24, 1), threadgroup=(8, 8, 1), tolerance=1e-5
    ),
    "neighbours": Idiom(NEIGHBOURS, _sliding),
    "device_barrier": Idiom(DEVICE_EXCHANGE, groups(lambda v: np.roll(v, -1)), {"x": X}),
    "early_return": Idiom(
        "uint i = thread_position_in_grid.x;\nif (i >= uint(x_shape[0])) return;\nout[i] = -x[i] + y[i];",
        lambda: Y - X,
        grid=(128, 1, 1),
    ),
    "positions": Idiom(
        POSITIONS,
        lambda: np.arange(5 * 4 * 3),
        {},
        (60,),
        mx.int32,
        (5, 4, 3),
        (4, 3, 3),
    ),
    "online_softmax": Idiom(ONLINE, lambda: np.log(np.exp(A).sum(1)), {"a": A}, (24,), grid=(24, 1, 1), tolerance=1e-5),
    "four_bits": Idiom(
        DOT4, _four_bits, {"w": WORDS, "x": X[:16]}, (12,), grid=(12, 1, 1), threadgroup=(4, 1, 1), tolerance=1e-5
    ),
    "helpers": Idiom(HELPED, lambda: 0.5 * X + 2.25, {"x": X}, header=HELPERS),
    "strides": Idiom(
        "uint i = thread_position_in_grid.x;\n"
        "out[i] = a[elem_to_loc(i, a_shape, a_strides, a_ndim)] + (a_strides[1] == 16 ? 0 : 1);",
        lambda: A.T.reshape(-1)[:384],
        {"a": mx.array(A).T},
        (384,),
        grid=(384, 1, 1),
        options={"ensure_row_contiguous": False},
    ),
    "contiguous": Idiom(
        "uint i = thread_position_in_grid.x;\nout[i] = a[i];",
        lambda: A.T.reshape(-1),
        {"a": mx.array(A).T},
        (384,),
        grid=(384, 1, 1),
    ),
    "scalars": Idiom(
        "uint i = thread_position_in_grid.x;\nout[i] = x[i] * scale + float(count) + few[i % 3] + few_ndim;",
        lambda: X * 2.5 + 3 + np.resize([1, 2, 3], N) + 1,
        {"x": X, "scale": 2.5, "count": 3, "few": np.array([1, 2, 3], np.float32)},
    ),
    "init_value": Idiom(
        "uint i = thread_position_in_grid.x;\nif (i % 2) out[i] += x[i];",
        lambda: np.where(np.arange(N) % 2, X + 1.5, 1.5),
        {"x": X},
        init_value=1.5,
    ),
    "histogram": Idiom(
        HISTOGRAM,
        lambda: np.bincount(I & 3, minlength=4),
        {"k": I},
        (4,),
        mx.int32,
        options={"atomic_outputs": True},
        init_value=0,
    ),
    "atomic_max": Idiom(
        "atomic_fetch_max_explicit(&out[0], k[thread_position_in_grid.x], memory_order_relaxed);\n"
        "int seen = atomic_load_explicit(&out[0], memory_order_relaxed);\n"
        "while (seen < 2000 && !atomic_compare_exchange_weak_explicit(&out[0], &seen, 2000, memory_order_relaxed, "
        "memory_order_relaxed)) {}",
        lambda: [2000],
        {"k": I},
        (1,),
        mx.int32,
        options={"atomic_outputs": True},
        init_value=-5000,
    ),
    "simd_sum": lanes("out[i] = simd_sum(v);", rows(lambda r: np.full(32, r.sum())), tolerance=1e-5),
    "simd_max_min": lanes("out[i] = simd_max(v) - simd_min(v);", rows(lambda r: np.full(32, r.max() - r.min()))),
    "simd_product": lanes("out[i] = simd_product(v);", rows(lambda r: np.full(32, r.prod())), tolerance=1e-5),
    "simd_and_or_xor": lanes(
        "int k = int(lane) + 3; out[i] = simd_and(k | 64) + simd_or(k) + simd_xor(k);",
        rows(
            lambda r: np.full(
                32,
                np.bitwise_and.reduce(np.arange(3, 35) | 64)
                + np.bitwise_or.reduce(np.arange(3, 35))
                + np.bitwise_xor.reduce(np.arange(3, 35)),
            )
        ),
    ),
    "simd_shuffles": lanes(
        "out[i] = simd_shuffle(v, 31 - lane) + simd_shuffle_xor(v, 5) + simd_broadcast(v, 7)\n"
        "    + simd_broadcast_first(v);",
        rows(lambda r: r[::-1] + r[np.arange(32) ^ 5] + r[7] + r[0]),
    ),
    "simd_shifts": lanes(
        "out[i] = simd_shuffle_down(v, 3) + simd_shuffle_up(v, 2) + simd_shuffle_rotate_down(v, 1)\n"
        "    + simd_shuffle_rotate_up(v, 4) + simd_shuffle_and_fill_up(v, 9.0f, 1);",
        rows(
            lambda r: (
                np.append(r[3:], r[29:])
                + np.append(r[:2], r[:-2])
                + np.roll(r, -1)
                + np.roll(r, 4)
                + np.append(9, r[:-1])
            )
        ),
    ),
    "simd_prefix": lanes(
        "out[i] = simd_prefix_inclusive_sum(v) - 2 * simd_prefix_exclusive_sum(v);",
        rows(lambda r: np.cumsum(r) - 2 * (np.cumsum(r) - r)),
        tolerance=1e-5,
    ),
    "simd_votes": lanes(
        "bool b = v > 0;\nuint64_t votes = (uint64_t)simd_ballot(b);\n"
        "out[i] = (votes >> lane & 1) + 2 * simd_any(b) + 4 * simd_all(b) + 8 * simd_all(true) + 16 * simd_is_first();",
        rows(lambda r: (r > 0) + 2 * (r > 0).any() + 4 * (r > 0).all() + 8 + 16 * (np.arange(32) == 0)),
    ),
    "simd_divergent": lanes(
        "if (lane < 10) out[i] = simd_sum(v);\nelse out[i] = simd_max(v);",
        rows(lambda r: np.append(np.full(10, r[:10].sum()), np.full(22, r[10:].max()))),
        tolerance=1e-5,
    ),
    "simd_in_one_line": lanes(
        "out[i] = lane < 10 ? simd_sum(v) : metal::simd_sum(2 * v);",
        rows(lambda r: np.append(np.full(10, r[:10].sum()), np.full(22, 2 * r[10:].sum()))),
        tolerance=1e-5,
    ),
    "simd_loops": lanes(
        "float s = 0;\nfor (uint k = 0; k < 3; k++) s += simd_shuffle_xor(v + k, ushort(1 << k));\nout[i] = s;",
        rows(lambda r: sum(r[np.arange(32) ^ (1 << k)] + k for k in range(3))),
    ),
    "simd_barrier": lanes(SIMD_EXCHANGE, rows(lambda r: r[::-1])),
    "quads": lanes(
        "out[i] = quad_sum(v) + quad_shuffle_xor(v, 1) + quad_broadcast(v, 2);",
        rows(
            lambda r: np.repeat(r.reshape(8, 4).sum(1), 4) + r[np.arange(32) ^ 1] + np.repeat(r.reshape(8, 4)[:, 2], 4)
        ),
        tolerance=1e-5,
    ),
    "simd_half": lanes(
        "half h = simd_sum(half(lane)); bfloat b = simd_max(bfloat(lane)); out[i] = float(h) + float(b);",
        rows(lambda r: np.full(32, 496 + 31)),
    ),
    "simd_vector": lanes(
        "float2 p = simd_sum(float2(v, 1)); out[i] = p.x / p.y;", rows(lambda r: np.full(32, r.mean())), tolerance=1e-5
    ),
    "matrix_float": Idiom(MATRIX, lambda: A @ B, {"a": A, "b": B}, template=[("T", mx.float32)], **MATRIX_SHAPE),
    "matrix_half": Idiom(
        MATRIX,
        lambda: as_half(A).astype(np.float32) @ as_half(B).astype(np.float32),
        {"a": as_half(A), "b": as_half(B)},
        template=[("T", mx.float16)],
        **MATRIX_SHAPE,
    ),
    "matrix_bfloat": Idiom(
        MATRIX,
        lambda: as_bfloat(A) @ as_bfloat(B),
        {"a": mx.array(A, mx.bfloat16), "b": mx.array(B, mx.bfloat16)},
        template=[("T", mx.bfloat16)],
        **MATRIX_SHAPE,
    ),
    "matrix_elements": Idiom(
        "simdgroup_float8x8 m, t;\nsimdgroup_load(m, a);\nsimdgroup_load(t, a, 8, ulong2(0, 0), true);\n"
        "simdgroup_float8x8 p = m * t, one = simdgroup_float8x8(1.0f);\nsimdgroup_multiply(p, p, one);\n"
        "p.thread_elements()[0] *= 2.0f; p.thread_elements()[1] *= 2.0f;\nsimdgroup_store(p, out, 8, ulong2(0), true);",
        lambda: 2 * (A.reshape(-1)[:64].reshape(8, 8) @ A.reshape(-1)[:64].reshape(8, 8).T).T,
        {"a": A},
        (8, 8),
        grid=(32, 1, 1),
        threadgroup=(32, 1, 1),
        tolerance=1e-5,
    ),
}


def _vectors() -> Any:
    x, y, z, w = X.reshape(-1, 4).T
    x, z = z, x
    w = w * 2
    return x, y + 1, y + x, w + y


def _packed() -> Any:
    v = X[:99].reshape(33, 3)
    return ((np.roll(v, 1, 1) + 1) * [2, 1, 1] * v + v[:, :1]).reshape(-1)


def _pairs() -> Any:
    v = X.reshape(-1, 2)
    first = np.hypot(v[:, 0], v[:, 1]) + v[:, 0] - v[:, 1] + np.maximum(v[:, 1], 0.5)
    other = as_half(v[:, 0]).astype(np.float32) + (v < 0).all(1) + v[:, 1]
    second = np.where((v > 1).any(1), np.exp(v[:, 1]), other)
    return np.stack([first, second], -1).reshape(-1)
