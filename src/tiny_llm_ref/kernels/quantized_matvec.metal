// A quantised matrix times a few vectors: y = x W^T, with W packed as quantize.py says.
//
// x: rows of I numbers of type T; the threadgroup's y is the number of its row. packed, scales and biases: O rows each.
// out: rows of O numbers of type T. bits: 2, 4 or 8. O is an argument of the kernel, like x and out.

constant constexpr uint ROWS = 4;    // rows of W per simdgroup, which uses each loaded element of x for all of them
constant constexpr uint CHUNK = 32;  // weights that a lane takes at a time: all of one group, since no group has fewer
constant constexpr uint LANES = 32;

// The words of a chunk as they are in memory, with their alignment, so a load can bring 16 bytes.
template <int bits>
struct alignas(4 * bits) Words {
    uint word[bits];

    uint level(uint i) const {
        const uint per_word = 32 / bits;
        return word[i / per_word] >> (i % per_word * bits) & ((1u << bits) - 1);
    }
};

KERNEL(quantized_matvec) {
    const uint I = x_shape[1], chunks = I / CHUNK, groups = scales_shape[1];  // per row
    const uint m = threadgroup_position_in_grid.y, lane = thread_index_in_simdgroup;
    const uint simdgroup = threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
    const uint first = simdgroup * ROWS;  // the first of its rows of W
    const device Words<bits>* words = (const device Words<bits>*)packed;

    // task w2d4.4 begin
    float total[ROWS] = {};
    for (uint chunk = lane; chunk < chunks; chunk += LANES) {
        float numbers[CHUNK], sum = 0;
        for (uint i = 0; i < CHUNK; i++) {
            numbers[i] = x[m * I + chunk * CHUNK + i];
            sum += numbers[i];
        }
        for (uint r = 0; r < ROWS; r++) {
            const uint row = min(first + r, O - 1);  // past the end, take the last row again; its total is not written
            const Words<bits> w = words[row * chunks + chunk];
            float dot = 0;
            for (uint i = 0; i < CHUNK; i++) dot += numbers[i] * w.level(i);
            const uint group = row * groups + chunk / (chunks / groups);
            total[r] += scales[group] * dot + biases[group] * sum;
        }
    }
    for (uint r = 0; r < ROWS; r++) {
        const float result = simd_sum(total[r]);
        if (lane == 0 && first + r < O) out[m * O + first + r] = T(result);
    }
    // task w2d4.4 end
}
