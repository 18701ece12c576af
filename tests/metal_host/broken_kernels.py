"""Kernels with one mistake each, which a checked run has to name, and sources that are refused."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

X = np.random.default_rng(1).standard_normal(128).astype(np.float32)


@dataclass
class Broken:
    kind: str
    source: str
    n: int = 64  # threads, in threadgroups of `group`
    group: int = 64
    out: int = 64
    inputs: dict[str, Any] = field(default_factory=lambda: {"x": X})
    header: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    init_value: float | None = None


INDEX = "uint i = thread_position_in_grid.x, t = thread_position_in_threadgroup.x;\n"
LANE = "uint i = thread_position_in_grid.x, lane = thread_index_in_simdgroup;\n"
TILE = INDEX + "threadgroup float tile[64];\n"
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
GROWN = INDEX + "float own[4];\nfor (uint k = 0; k < i; k++) own[k & 3] += x[k];\n"  # adds to uninitialised values
PAIR = "float one(const device float* p, uint i) {\n    return p[i];\n}\n"
PAIR += "float pair(const device float* p, uint i) {\n    return one(p, i) + one(p, i + 1);\n}\n"
ATOMIC = {"options": {"atomic_outputs": True}, "init_value": 0}

BROKEN: dict[str, Broken] = {
    # out of bounds
    "read_past_end": Broken("bounds", INDEX + "out[i] = x[i] + x[i + 65];"),
    "write_past_end": Broken("bounds", INDEX + "out[i + 1] = x[i];"),
    "read_before": Broken("bounds", INDEX + "int k = int(i) - 1;\nout[i] = x[k];"),
    "unsigned_below_0": Broken("bounds", INDEX + "out[i] = x[i - 1];"),
    "threadgroup_past_end": Broken("array", TILE + "tile[t + 1] = x[i];\n" + BARRIER + "out[i] = tile[t];"),
    "vector_past_end": Broken("bounds", INDEX + "out[i] = ((const device float4*)x)[i].x;"),
    "shape_past_end": Broken("bounds", INDEX + "out[i] = x[i] * x_shape[1];"),
    "scalar_as_array": Broken("bounds", INDEX + "out[i] = (&s)[1];", inputs={"x": X, "s": 1.0}),
    "private_past_end": Broken(
        "array", INDEX + "float own[4];\nfor (uint k = 0; k <= 4; k++) own[k] = x[k + i];\nout[i] = own[i & 3];"
    ),
    "private_through_pointer": Broken(
        "bounds",
        INDEX + "float own[4] = {};\nfill(own, i / 60);\nout[i] = own[i & 3];",
        header="void fill(thread float* p, uint n) {\n    for (uint k = 0; k < 4 + n; k++) p[k] = k;\n}\n",
    ),
    "private_before": Broken(
        "bounds",
        INDEX + "float own[2][2], v = 1;\nthread float* p = own[0];\np[-1] = v;\nout[i] = own[1][i & 1] + p[0];",
    ),
    "vector_element": Broken(
        "vector", INDEX + "float4 v = x[i];\nfor (uint k = 0; k < 5; k++) v[k + (i >> 6)] += 1;\nout[i] = v[0];"
    ),
    "in_header": Broken(
        "bounds",
        INDEX + "out[i] = get(x, i);",
        header="inline float get(const device float* p, uint i) {\n    return p[2 * i + 2];\n}\n",
    ),
    "wild_pointer": Broken(
        "wild", INDEX + "const device float* p = (const device float*)(8 * (i + (1ul << 40)));\nout[i] = *p;"
    ),
    "matrix_past_end": Broken(
        "bounds", "simdgroup_float8x8 m;\nsimdgroup_load(m, x + 9, 16);\nsimdgroup_store(m, out);", 32, 32
    ),
    # races
    "no_barrier": Broken("race", TILE + "tile[t] = x[i];\nout[i] = tile[63 - t];"),
    "barrier_too_late": Broken(
        "race",
        TILE
        + "tile[t] = x[i];\n"
        + BARRIER
        + "float v = tile[63 - t];\ntile[t] = v;\n"
        + BARRIER
        + "out[i] = tile[t];",
    ),
    "all_write_one": Broken("race", TILE + "tile[0] = x[i];\n" + BARRIER + "out[i] = tile[0];"),
    "wrong_flags": Broken(
        "race", TILE + "tile[t] = x[i];\nthreadgroup_barrier(mem_flags::mem_device);\nout[i] = tile[63 - t];"
    ),
    "wrong_flags_device": Broken(
        "race",
        INDEX
        + "out[i] = x[i];\n"
        + BARRIER
        + "float v = out[63 - t];\nthreadgroup_barrier(mem_flags::mem_device);\nout[i] = v;",
    ),
    "no_flags": Broken(
        "race", TILE + "tile[t] = x[i];\nthreadgroup_barrier(mem_flags::mem_none);\nout[i] = tile[63 - t];"
    ),
    "simd_barrier_only": Broken(
        "race", TILE + "tile[t] = x[i];\nsimdgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = tile[63 - t];"
    ),
    "within_simdgroup": Broken("race", TILE + "tile[t] = x[i];\nout[i] = tile[t ^ 1];"),
    "across_threadgroups": Broken("race", INDEX + "out[0] = x[i];\nout[i] = 0;", 64, 1),
    "neighbour_threadgroup": Broken(
        "race",
        INDEX + "out[i] = x[i];\nthreadgroup_barrier(mem_flags::mem_device);\nif (i > 0) out[i] += out[i - 1];",
        64,
        32,
    ),
    "sum_without_atomic": Broken("race", INDEX + "out[t] += x[i];", 64, 32, 32, init_value=0),
    "atomic_and_plain": Broken(
        "race",
        INDEX
        + "atomic_fetch_add_explicit(&out[0], 1.0f, memory_order_relaxed);\nif (t == 5) ((device float*)out)[0] = 2;",
        **ATOMIC,
    ),
    # barriers and simdgroups
    "barrier_in_branch": Broken("divergent", TILE + "tile[t] = x[i];\nif (t < 40) " + BARRIER + "out[i] = tile[t];"),
    "two_barriers": Broken(
        "divergent", TILE + "if (t < 40) {\n" + BARRIER + "} else {\n" + BARRIER + "}\nout[i] = x[i];"
    ),
    "return_before_barrier": Broken(
        "divergent", TILE + "if (i >= 60) return;\ntile[t] = x[i];\n" + BARRIER + "out[i] = tile[t];"
    ),
    "barrier_in_loop": Broken(
        "divergent", INDEX + "for (uint k = 0; k <= t / 32; k++)\n    " + BARRIER + "out[i] = x[i];"
    ),
    "simd_barrier_in_branch": Broken(
        "divergent", LANE + "if (lane < 16) simdgroup_barrier(mem_flags::mem_none);\nout[i] = x[i];"
    ),
    "shuffle_from_inactive": Broken(
        "inactive", LANE + "float v = 0;\nif (lane < 16) v = simd_shuffle_down(x[i], 8);\nout[i] = v;"
    ),
    "broadcast_of_ended": Broken("inactive", LANE + "if (lane == 0) return;\nout[i] = simd_broadcast(x[i], 0);"),
    "matrix_in_branch": Broken(
        "not_all", LANE + "simdgroup_float8x8 m;\nif (lane < 31) simdgroup_load(m, x);\nout[i] = 0;"
    ),
    "matrix_in_half_group": Broken(
        "not_all",
        "simdgroup_float8x8 m, p;\n"
        "m = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);\n"
        "simdgroup_multiply(p, m, m);\nout[thread_index_in_threadgroup] = 0;",
        16,
        16,
    ),
    # unwritten memory
    "unwritten_threadgroup": Broken("unwritten", TILE + "if (t % 2) tile[t] = x[i];\n" + BARRIER + "out[i] = tile[t];"),
    "unwritten_output": Broken("unwritten", INDEX + "out[i] += x[i];"),
    "old_threadgroup_memory": Broken(
        "unwritten", TILE + "if (i < 64) tile[t] = x[i];\n" + BARRIER + "out[i] = tile[t];", 128, 64, 128
    ),
    "missing_outputs": Broken("output", INDEX + "if (i % 3) out[i] = x[i];"),
    "missing_tail": Broken("output", INDEX + "out[i] = x[i];", 60),
    "missing_half_element": Broken("output", INDEX + "((device half*)out)[2 * i] = half(x[i]);"),
    # uninitialised variables
    "unset_array": Broken("unset", GROWN + "out[i] = own[i & 3];"),
    "unset_sum": Broken("unset", GROWN + "out[i] = simd_sum(own[i & 3]);"),
    "unset_vector": Broken("unset", INDEX + "float4 sum;\nfor (uint k = 0; k < i; k++) sum += x[k];\nout[i] = sum.x;"),
    "unset_max": Broken(
        "unset", GROWN + "for (uint k = 0; k < 4; k++) own[k] = max(own[k], x[k + i]);\nout[i] = own[i & 3];"
    ),
    "unset_half": Broken(
        "unset", INDEX + "half own[4];\nfor (uint k = 0; k < i; k++) own[k & 3] = half(1);\nout[i] = own[i & 3];"
    ),
    "unset_index": Broken(
        "bounds", INDEX + "int own[4];\nfor (uint k = 0; k < i; k++) own[k & 3] = k;\nout[i] = x[own[i & 3]];"
    ),
    "unset_pointer": Broken(
        "unset_pointer",
        INDEX + "const device float* own[2];\nfor (uint k = 0; k < i; k++) own[k & 1] = x;\nout[i] = own[i & 1][3];",
    ),
    "null_pointer": Broken("null", INDEX + "const device float* p = i < 60 ? x : nullptr;\nout[i] = p[i];"),
    # in functions of a header
    "header_null": Broken(
        "null", INDEX + "const device float* p = i < 50 ? x : nullptr;\nout[i] = pair(p, i);", header=PAIR
    ),
    "header_array": Broken(
        "array",
        INDEX + "out[i] = pick(i);",
        header="float pick(uint i) {\n    float own[4] = {1, 2, 3, 4};\n    return own[i];\n}\n",
    ),
    "header_barrier": Broken(
        "divergent",
        INDEX + "if (t < 40)\n    meet();\nout[i] = x[i];",
        header=f"void meet() {{\n    {BARRIER}}}\n",
    ),
    "header_race": Broken(
        "race",
        TILE + "put(tile, t);\nout[i] = get(tile, t);",
        header="void put(threadgroup float* p, uint t) {\n    p[t] = t;\n}\n"
        "float get(threadgroup float* p, uint t) {\n    return p[63 - t];\n}\n",
    ),
    "header_shuffle": Broken(
        "inactive",
        LANE + "float v = 0;\nif (lane < 16)\n    v = next(x[i]);\nout[i] = v;",
        header="float next(float v) {\n    return simd_shuffle_down(v, 8);\n}\n",
    ),
    # others
    "misaligned": Broken("misaligned", INDEX + "out[i] = ((const device float4*)(x + i))->x;"),
    "misaligned_half": Broken("misaligned", INDEX + "((device uint*)((device char*)out + 1))[0] = i;", 1, 1),
    "too_much_threadgroup": Broken(
        "threadgroup_memory",
        INDEX + "threadgroup float a[4096];\nthreadgroup float b[4097];\na[t] = b[t] = x[i];\nout[i] = a[t] + b[t];",
    ),
    "endless": Broken("endless", INDEX + "float v = x[i];\nwhile (v < 1e30) v = v * 0.5 + 1;\nout[i] = v;"),
    "endless_empty": Broken("time", INDEX + "for (;;) {}\nout[i] = 0;"),
    "endless_wait": Broken(
        "endless", "while (atomic_load_explicit(&out[0], memory_order_relaxed) == 0) {}", 32, 32, **ATOMIC
    ),
    "too_deep": Broken(
        "stack",
        INDEX + "out[i] = f(x, 0);",
        header="float f(const device float* p, int k) {\n    float own[64];\n"
        "    for (int j = 0; j < 64; j++) own[j] = p[j];\n"
        "    return own[k & 63] + f(p, k + 1) + own[(k + 1) & 63];\n}\n",
    ),
    "division": Broken("division", INDEX + "out[i] = 10 / int(i);"),
}

REFUSED: dict[str, tuple[str, str]] = {  # the source, and the message of g++|clang
    "double": ("out[0] = double(x[0]);", "Metal has no 'double'"),
    "texture": ("texture2d<float> t;\nout[0] = 0;", "'texture2d': mx.fast.metal_kernel passes buffers, no textures"),
    "fence": (
        "atomic_thread_fence(mem_flags::mem_device);\nout[0] = 0;",
        "'atomic_thread_fence' is not supported by metal_host, which runs threadgroups in no particular order",
    ),
    "matrix_of_int": ("simdgroup_matrix<int, 8, 8> m;\nout[0] = 0;", "simdgroup_matrix are float, half or bfloat"),
    "matrix": ("float4x4 m;\nout[0] = 0;", "'float4x4' is not supported by metal_host"),
    "goto": ("goto end;\nend: out[0] = 0;", "Metal has no 'goto'"),
    "bfloat_from_float": (
        "bfloat b = 1.0f;\nout[0] = b;",
        "conversion from 'float' to non-scalar type 'bfloat' requested|no viable conversion from 'float' to 'bfloat'",
    ),
    "own_unwritten": ("float v;\nout[0] = v + x[0];", "'v' is used uninitialized|variable 'v' is uninitialized"),
    "typing_error": ("out[0] = x[0]\nout[1] = 1;", "expected ';'"),
    "own_simd_sum": ("int simd_sum(float) = 1;\nout[0] = 0;", "'simd_sum' is a function of Metal"),
    "unknown_name": (
        "out[0] = simd_summe(x[0]);",
        "'simd_summe' was not declared in this scope|use of undeclared identifier 'simd_summe'",
    ),
    "write_to_input": (
        "x[0] = 1;\nout[0] = 0;",
        "assignment of read-only location|read-only variable is not assignable",
    ),
    "wrong_vector": ("float4 v = float4(1, 2, 3);\nout[0] = v.x;", "wrong number of elements for this vector"),
    "vector_types": (
        "float4 v = half4(1);\nout[0] = v.x;",
        "conversion from 'half4' to non-scalar type 'float4'|no viable conversion from 'half4' to 'float4'",
    ),
    "swizzle": ("float2 v = 1; out[0] = v.xz.x;", "has no member named 'xz'|no member named 'xz' in 'float2'"),
    "file": ('#include "mlx/backend/metal/kernels/utils.h"\nout[0] = 0;', "there are no files to include"),
    "large_matrix": ("simdgroup_matrix<float, 16, 16> m;\nout[0] = 0;", "a simdgroup_matrix has 8 x 8 elements"),
    "pointer_without_space": ("float* p = out;\np[0] = x[0];", "pointer without an address space: write device"),
    "threadgroup_in_function": ("out[0] = 0;", "threadgroup variable 'a' in a function that is not a kernel"),
    "threadgroup_value": ("threadgroup float a[1] = {1};\nout[0] = a[0];", "'a' with an initial value"),
    "declared_twice": (
        "threadgroup float a[4]; threadgroup half a[4];\nout[0] = 0;",
        "a second threadgroup variable 'a'",
    ),
    "variable_length": (
        "float own[x_shape[0]];\nown[0] = x[0];\nout[0] = own[0];",
        "Metal has no arrays of variable len",
    ),
    "function_constant": ("out[0] = 0;", "cannot set a function constant: make it a template argument"),
}
REFUSED_HEADERS = {
    "function_constant": "constant bool causal [[function_constant(0)]];\n",
    "threadgroup_in_function": "float f() { threadgroup float a[4]; return a[0]; }\n",
}
