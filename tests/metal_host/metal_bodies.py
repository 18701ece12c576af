"""Bodies of kernels with several lines each. metal_idioms.py tells what they compute."""

TREE = """
threadgroup float part[64];
uint t = thread_position_in_threadgroup.x, n = threads_per_threadgroup.x, i = thread_position_in_grid.x;
part[t] = x[i] + 0.0 * y[i];
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint step = 32; step > 0; step /= 2) {
    if (t < step && t + step < n) part[t] += part[t + step];
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
out[i] = part[0];
"""
TWO_LEVELS = """
threadgroup float part[32];
uint t = thread_index_in_threadgroup, lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup;
float sum = 0;
for (uint k = t; k < uint(x_shape[0]); k += threads_per_threadgroup.x) sum += x[k];
sum = simd_sum(sum);
if (lane == 0) part[group] = sum;
threadgroup_barrier(mem_flags::mem_threadgroup);
if (group == 0) {
    sum = simd_sum(lane < simdgroups_per_threadgroup ? part[lane] : 0.0f);
    if (lane == 0) out[0] = sum;
}
"""
TILED = """
constexpr uint M = 24, N = 40, K = 16, S = 8;
threadgroup float left[S][S], right[S][S];
uint2 at = thread_position_in_grid.xy, in = thread_position_in_threadgroup.xy;
float sum = 0.0;
for (uint k = 0; k < K; k += S) {
    left[in.y][in.x] = a[at.y * K + k + in.x];
    right[in.y][in.x] = b[(k + in.y) * N + at.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = 0; j < S; j++) sum = fma(left[in.y][j], right[j][in.x], sum);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
out[at.y * N + at.x] = sum;
"""
MATRIX = """
const uint row = threadgroup_position_in_grid.y * 8, column = threadgroup_position_in_grid.x * 8;
simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
simdgroup_matrix<T, 8, 8> left, right;
for (uint k = 0; k < 16; k += 8) {
    simdgroup_load(left, a + row * 16 + k, 16);
    simdgroup_load(right, b + k * 40 + column, 40);
    simdgroup_multiply_accumulate(sum, left, right, sum);
}
simdgroup_store(sum, out + row * 40 + column, 40);
"""
ONLINE = """
float m = -INFINITY, s = 0.0;
const uint row = thread_position_in_grid.x;
for (int k = 0; k < 16; ++k) {
    const float value = a[row * 16 + k], larger = metal::max(m, value);
    s = s * metal::fast::exp(m - larger) + metal::precise::exp(value - larger);
    m = larger;
}
out[row] = m + log(s);
"""
DOT4 = """
const device uint32_t* words = w + thread_position_in_grid.x * 2;
const device float4* v = (const device float4*)x;
float sum = 0;
for (int k = 0; k < 2; k++) {
    const uint word = words[k];
    float4 low = float4(word & 15, word >> 4 & 15, word >> 8 & 15, word >> 12 & 15);
    float4 high = float4((uint4(word) >> uint4(16, 20, 24, 28)) & 15u);
    sum += dot(low, v[2 * k]) + dot(high, v[2 * k + 1]);
}
out[thread_position_in_grid.x] = sum;
"""
HISTOGRAM = """
threadgroup atomic_int counts[4];
uint t = thread_index_in_threadgroup;
if (t < 4) atomic_store_explicit(&counts[t], 0, memory_order_relaxed);
threadgroup_barrier(mem_flags::mem_threadgroup);
atomic_fetch_add_explicit(&counts[uint(k[thread_position_in_grid.x]) & 3], 1, memory_order_relaxed);
threadgroup_barrier(mem_flags::mem_threadgroup);
if (t < 4) {
    int n = atomic_load_explicit(counts + t, memory_order_relaxed);
    atomic_fetch_add_explicit(&out[t], n, memory_order_relaxed);
}
"""
HELPERS = """
#include <metal_stdlib>
#define SQUARE(v) ((v) * (v))  // of 1.5 it's 2.25
constant float weights[3] = {0.25, .5, 1e0};
constant constexpr int LAST = 2;
template <typename T, int N>
struct Sum {
    T held[N];
    METAL_FUNC void add(thread const T* from, int n) { for (int i = 0; i < n; ++i) held[i] = from[i]; }
    inline T total() const thread { T t = 0; for (int i = 0; i < N; i++) t += held[i]; return t; }
};
template <typename T> inline float weighted(const device T* from, constant float& w, uint i) { return w * from[i]; }
"""
HELPED = """
uint i = thread_position_in_grid.x;
Sum<float, 2> sum;
thread float parts[2] = {weighted(x, weights[1], i),  // of 0.5
                         SQUARE(1.5)};
sum.add(parts, 2);
out[i] = sum.total() * weights[LAST];
"""
NEIGHBOURS = """
threadgroup float tile[66];
const uint t = thread_position_in_threadgroup.x, i = thread_position_in_grid.x, n = threads_per_threadgroup.x;
tile[t + 1] = x[i];
if (t == 0) tile[0] = i > 0 ? x[i - 1] : 0.0;
if (t == n - 1) tile[n + 1] = i + 1 < threads_per_grid.x ? x[i + 1] : 0.0;
threadgroup_barrier(mem_flags::mem_threadgroup);
out[i] = tile[t] + tile[t + 1] + tile[t + 2];
"""
DEVICE_EXCHANGE = """
uint i = thread_position_in_grid.x, t = thread_position_in_threadgroup.x, first = i - t;
out[i] = x[i];
threadgroup_barrier(mem_flags::mem_device);
float next = out[first + (t + 1) % threads_per_threadgroup.x];
threadgroup_barrier(mem_flags::mem_device);
out[i] = next;
"""
SIMD_EXCHANGE = """
threadgroup float mine[2][32];
uint group = simdgroup_index_in_threadgroup;
mine[group][lane] = v;
simdgroup_barrier(mem_flags::mem_threadgroup);
out[i] = mine[group][31 - lane];
"""
POSITIONS = """
uint3 p = thread_position_in_grid, q = thread_position_in_threadgroup, g = threadgroup_position_in_grid;
uint at = (p.z * threads_per_grid.y + p.y) * grid_size.x + p.x;
bool right = all(p == g * dispatch_threads_per_threadgroup + q) && all(grid_origin == 0u) &&
             thread_index_in_threadgroup == (q.z * threads_per_threadgroup.y + q.y) * threads_per_threadgroup.x + q.x &&
             thread_index_in_simdgroup == thread_index_in_threadgroup % threads_per_simdgroup &&
             all(threadgroups_per_grid == uint3(2, 2, 1)) && thread_execution_width == 32 &&
             simdgroups_per_threadgroup == (threads_per_threadgroup.x * threads_per_threadgroup.y * 3 + 31) / 32 &&
             dispatch_simdgroups_per_threadgroup == 2 && thread_index_in_quadgroup == thread_index_in_threadgroup % 4;
out[at] = right ? int(at) : -1;
"""
