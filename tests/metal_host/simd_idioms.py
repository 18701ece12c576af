"""Idioms of simdgroups: operations between lanes, and matrices of 8 x 8."""

from typing import Any

import mlx.core as mx
import numpy as np
from idiom import A, B, Idiom, as_bfloat, as_half, lanes, rows
from metal_bodies import MATRIX, SIMD_EXCHANGE

MATRIX_SHAPE: dict[str, Any] = {"shape": (24, 40), "grid": (5 * 32, 3, 1), "threadgroup": (32, 1, 1), "tolerance": 1e-5}
SIMD_IDIOMS: dict[str, Idiom] = {
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
