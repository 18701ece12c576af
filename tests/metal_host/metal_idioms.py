"""Small correct kernels in the usual style of Metal, each with its result in NumPy."""

from typing import Any

import mlx.core as mx
import numpy as np
from idiom import RANDOM, A, B, I, Idiom, N, X, Y, as_bfloat, as_half, each, groups
from metal_bodies import (
    DEVICE_EXCHANGE,
    DOT4,
    HELPED,
    HELPERS,
    HISTOGRAM,
    NEIGHBOURS,
    ONLINE,
    POSITIONS,
    TILED,
    TREE,
    TWO_LEVELS,
)
from simd_idioms import SIMD_IDIOMS

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
        "((device int4*)out)[i] = (v >> 2) + int4(c) * int4(1, 2, 3, 4) - ~v + select(v, int4(7), v > int4(0))"
        " + min(v, 5) + max(int4(c), v);",
        lambda: (
            (I >> 2)
            + (I & 255) * np.tile([1, 2, 3, 4], N // 4)
            - ~I
            + np.where(I > 0, 7, I)
            + np.minimum(I, 5)
            + np.maximum(I & 255, I)
        ),
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
}
IDIOMS |= SIMD_IDIOMS


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
