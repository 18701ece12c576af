// RMSNorm, and the residual sum before it. Each row has a threadgroup of its own.
//
// x, residual, total and out: rows of n numbers of type T. weight: n numbers of type T. The threadgroup's y is the
// number of its row.

constant constexpr uint MOST_SIMDGROUPS = 32;  // per threadgroup

// Returns four numbers from i on, as float; past the end of the row they are 0, which changes no sum. A thread takes
// four neighbours at a time, so a simdgroup takes 128 numbers in a row.
template <typename T>
float4 load4(const device T* row, uint i, uint n) {
    if (i + 4 <= n) return float4(row[i], row[i + 1], row[i + 2], row[i + 3]);
    float4 numbers = 0;
    for (uint k = 0; i + k < n; k++) numbers[k] = row[i + k];
    return numbers;
}

template <typename T>
void store4(device T* row, uint i, uint n, float4 numbers) {
    for (uint k = 0; k < 4 && i + k < n; k++) row[i + k] = T(numbers[k]);
}

float sum4(float4 v) { return v.x + v.y + v.z + v.w; }

// A thread: the place of its first four numbers, the distance from there to the next four, and its own place in the
// threadgroup.
struct Thread {
    uint first, step, lane, simdgroup, simdgroups;
};

// Computes one row: total = x + residual, out = total / sqrt(mean(total^2) + eps) * weight. Without a residual (null),
// x is the total, and nothing is written to `total`. found: the sum of each simdgroup, for all threads to read.
template <typename T>
void add_rms_norm_row(const device T* x, const device T* residual, const device T* weight, device T* total,
                      device T* out, uint n, float eps, threadgroup float* found, Thread me) {
    // task w2d5.4 begin
    float4 squares = 0;
    for (uint i = me.first; i < n; i += me.step) {
        float4 y = load4(x, i, n);
        if (residual) store4(total, i, n, y += load4(residual, i, n));
        squares += y * y;
    }
    float sum = simd_sum(sum4(squares));
    if (me.lane == 0) found[me.simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(me.lane < me.simdgroups ? found[me.lane] : 0);

    const device T* y = residual ? total : x;  // of total a thread reads what it has written itself: no barrier
    const float factor = rsqrt(sum / n + eps);
    for (uint i = me.first; i < n; i += me.step) store4(out, i, n, load4(y, i, n) * factor * load4(weight, i, n));
    // task w2d5.4 end
}

KERNEL(rms_norm) {
    const uint n = x_shape[1];
    const ulong row = ulong(threadgroup_position_in_grid.y) * n;
    const Thread me = {4 * thread_index_in_threadgroup, 4 * threads_per_threadgroup.x, thread_index_in_simdgroup,
                       simdgroup_index_in_threadgroup, simdgroups_per_threadgroup};
    threadgroup float found[MOST_SIMDGROUPS];
    add_rms_norm_row<T>(x + row, nullptr, weight, nullptr, out + row, n, eps, found, me);
}

KERNEL(add_rms_norm) {
    const uint n = x_shape[1];
    const ulong row = ulong(threadgroup_position_in_grid.y) * n;
    const Thread me = {4 * thread_index_in_threadgroup, 4 * threads_per_threadgroup.x, thread_index_in_simdgroup,
                       simdgroup_index_in_threadgroup, simdgroups_per_threadgroup};
    threadgroup float found[MOST_SIMDGROUPS];
    add_rms_norm_row<T>(x + row, residual + row, weight, total + row, out + row, n, eps, found, me);
}
