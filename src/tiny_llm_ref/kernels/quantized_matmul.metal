// Many vectors times a quantised matrix, a tile of the result at a time: y = x W^T, with W packed as quantize.py says.
//
// x: M rows of I numbers of type T. packed, scales and biases: O rows each. out: M rows of O numbers of type T.
// bits: 2, 4 or 8. O is an argument, like x. A threadgroup has four simdgroups and computes TILE x TILE numbers of out.

constant constexpr uint TILE = 32;          // rows of x, rows of W, and numbers of each at a time: all of one group
constant constexpr uint STRIDE = TILE + 4;  // numbers from row to row, so that rows begin in different banks
constant constexpr uint SIMDGROUPS = 4;
constant constexpr uint SHARE = 8;        // weights of a row that a thread unpacks
constant constexpr uint HALF = TILE / 2;  // a simdgroup has a quarter of the tile: HALF x HALF sums
constant constexpr uint SIDE = 8;         // rows of a simdgroup_float8x8

// SHARE levels as they are in memory, so that one load brings all of them.
template <int bits>
struct alignas(bits) Levels {
    uchar byte[bits];

    uint level(uint i) const {
        const uint per_byte = 8 / bits;
        return byte[i / per_byte] >> (i % per_byte * bits) & ((1u << bits) - 1);
    }
};

KERNEL(quantized_matmul) {
    const uint M = x_shape[0], I = x_shape[1], groups = scales_shape[1];  // I and groups: per row
    const uint top = threadgroup_position_in_grid.y * TILE, left = threadgroup_position_in_grid.x * TILE;
    const uint simdgroup = simdgroup_index_in_threadgroup, lane = thread_index_in_simdgroup;
    const uint t = thread_index_in_threadgroup, row = t / 4, first = t % 4 * SHARE;  // where the thread's weights are
    const device Levels<bits>* levels = (const device Levels<bits>*)packed;

    threadgroup float tile_x[TILE * STRIDE], tile_w[TILE * STRIDE];
    // task w2d6.3 begin
    const uint w_row = min(left + row, O - 1);  // past the last row, the last row again; its results are not stored
    const uint down = simdgroup / 2 * HALF, right = simdgroup % 2 * HALF;
    simdgroup_float8x8 sums[2][2], a[2], b[2];
    for (uint i = 0; i < 2; i++)
        for (uint j = 0; j < 2; j++) sums[i][j] = simdgroup_float8x8(0);
    for (uint k = 0; k < I; k += TILE) {
        for (uint r = simdgroup; r < TILE; r += SIMDGROUPS)
            tile_x[r * STRIDE + lane] = x[min(top + r, M - 1) * I + k + lane];
        const uint group = w_row * groups + k / (I / groups);
        const float scale = scales[group], bias = biases[group];
        const Levels<bits> of_row = levels[(w_row * I + k + first) / SHARE];
        for (uint i = 0; i < SHARE; i++) tile_w[row * STRIDE + first + i] = scale * of_row.level(i) + bias;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint step = 0; step < TILE; step += SIDE) {
            for (uint i = 0; i < 2; i++) {
                simdgroup_load(a[i], tile_x + (down + i * SIDE) * STRIDE + step, STRIDE);
                simdgroup_load(b[i], tile_w + (right + i * SIDE) * STRIDE + step, STRIDE, 0, true);  // W^T
            }
            for (uint i = 0; i < 2; i++)
                for (uint j = 0; j < 2; j++) simdgroup_multiply_accumulate(sums[i][j], a[i], b[j], sums[i][j]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint i = 0; i < 2; i++)
        for (uint j = 0; j < 2; j++)
            simdgroup_store(sums[i][j], tile_x + (down + i * SIDE) * STRIDE + right + j * SIDE, STRIDE);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = simdgroup; r < TILE; r += SIMDGROUPS)
        if (top + r < M && left + lane < O) out[(top + r) * O + left + lane] = T(tile_x[r * STRIDE + lane]);
    // task w2d6.3 end
}
