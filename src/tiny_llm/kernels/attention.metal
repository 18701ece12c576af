// FlashAttention: softmax(Q K^T * scale) V, whose L x S scores are never in memory as a whole.
//
// query and out: heads of L rows of D numbers of type T; key and value: heads of S rows, each for `group` heads of
// queries. Inputs may be views: strides say how far apart two heads, two rows and two numbers of a row are, counted in
// numbers. causal: whether the L queries are the last L of S positions, and see nothing behind their own.

constant constexpr uint LANES = 32;
constant constexpr uint SIDE = 8;                          // of a simdgroup_float8x8, and queries of a simdgroup
constant constexpr uint QUERIES = 32;                      // of a threadgroup that has a block of them
constant constexpr uint THREADS = QUERIES / SIDE * LANES;  // of such a threadgroup
constant constexpr uint PART = 64;                         // keys for a simdgroup, where keys are shared out

// Number d of row j of a head, whose rows have D of them, and zeros behind.
template <uint D, typename T>
float number(const device T* head, const constant int64_t* strides, uint j, uint d) {
    return D % LANES == 0 || d < D ? float(head[j * strides[1] + d * strides[2]]) : 0;
}

// Where in a simdgroup_float8x8 the two numbers of a lane stand: in this row, in this column and the next. Apple's
// documents do not say it, but MLX's own kernels count on it.
uint row_of(uint lane) { return (lane / 4 & 4) + lane / 2 % 4; }
uint column_of(uint lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

// Over a row of such matrices: over the four lanes that have a part of it.
float max_of_row(float x) {
    x = max(x, simd_shuffle_xor(x, 1));
    return max(x, simd_shuffle_xor(x, 8));
}
float sum_of_row(float x) {
    x += simd_shuffle_xor(x, 1);
    return x + simd_shuffle_xor(x, 8);
}

// COUNT of a head's S rows as float, from the row `first` on, by all threads; zeros for rows that do not exist, and
// behind the D numbers of a row.
template <uint COUNT, uint D, uint STRIDE, typename T>
void load_rows(const device T* head, const constant int64_t* strides, uint first, uint S, threadgroup float* to,
               uint t) {
    constexpr uint WIDTH = (D + SIDE - 1) / SIDE * SIDE;
    for (uint i = t; i < COUNT * WIDTH; i += THREADS) {
        const uint j = i / WIDTH, d = i % WIDTH;
        to[j * STRIDE + d] = first + j < S && d < D ? float(head[(first + j) * strides[1] + d * strides[2]]) : 0;
    }
}

// QUERIES queries of a head by a threadgroup, for all keys that they see, a block of KEYS keys at a time.
KERNEL(attend_blocks) {
    constexpr uint KEYS = D > 128 ? 8 : 16;  // what fits into 32 KiB, with their values
    constexpr uint COLUMNS = (D + SIDE - 1) / SIDE, STRIDE = COLUMNS * SIDE + 4;  // 4 more: rows begin in other banks
    const uint L = query_shape[1], S = key_shape[1];
    const uint lane = thread_index_in_simdgroup, column = column_of(lane);
    const uint head = threadgroup_position_in_grid.y, first_query = threadgroup_position_in_grid.x * QUERIES;
    const uint i = first_query + simdgroup_index_in_threadgroup * SIDE + row_of(lane);  // the lane's query
    const uint sees = causal ? S - L + min(i + 1, L) : S;                               // keys, from the first on
    const uint any_sees = causal ? S - L + min(first_query + QUERIES, L) : S;           // the same for the last query

    threadgroup float key_block[KEYS * STRIDE], value_block[KEYS * STRIDE];
    simdgroup_float8x8 queries[COLUMNS], sums[COLUMNS], block;
    for (uint c = 0; c < COLUMNS; c++)
        for (uint e = 0; e < 2; e++) {
            const uint d = c * SIDE + column + e;
            const device T* place = query + head * query_strides[0] + i * query_strides[1] + d * query_strides[2];
            queries[c].thread_elements()[e] = i < L && d < D ? scale * *place : 0;
            sums[c].thread_elements()[e] = 0;
        }
    float largest = -INFINITY, total = 0;
    // task w2d7.4 begin
    // Week 2 Day 7 Task 4: what belongs here is yours to write.
    // Chapter: FlashAttention.
    // Test: ./course test w2d7.4
    // task w2d7.4 end
}

// A row and one part of the keys, by a simdgroup. Row r of a head of keys is query r % L of its head r / L of queries.
// What a row has of a part: the largest score, the sum of exp(score - largest), and that of the values times these.
KERNEL(attend_part) {
    constexpr uint SHARE = (D + LANES - 1) / LANES;  // neighbours in a row, for a lane
    const uint L = query_shape[1], S = key_shape[1], part = threadgroup_position_in_grid.x;
    const uint head = thread_position_in_grid.z, row = head * threads_per_grid.y + thread_position_in_grid.y;
    const uint place = row * threadgroups_per_grid.x + part;  // of what is found
    const uint lane = thread_index_in_simdgroup, first_number = lane * SHARE;
    const uint sees = causal ? S - L + row % L + 1 : S;  // keys, from the first on
    const device T* queries = query + row / L * query_strides[0];

    float numbers[SHARE], sum[SHARE] = {}, largest = -INFINITY, total = 0;
    for (uint i = 0; i < SHARE; i++) numbers[i] = scale * number<D>(queries, query_strides, row % L, first_number + i);
    // task w2d7.5 begin
    // Week 2 Day 7 Task 5: what belongs here is yours to write.
    // Chapter: FlashAttention.
    // Test: ./course test w2d7.5
    // task w2d7.5 end
}

// The result's number d of a row, by a thread: what the row has of all parts.
KERNEL(join_split_kv) {
    const uint parts = sums_shape[1], D = sums_shape[2], row = thread_position_in_grid.y, d = thread_position_in_grid.x;
    float largest = -INFINITY, total = 0, sum = 0;
    for (uint i = row * parts; i < (row + 1) * parts; i++) largest = max(largest, maxima[i]);
    for (uint i = row * parts; i < (row + 1) * parts; i++) {
        const float kept = exp(maxima[i] - largest);  // 0 for a part of which the query sees nothing
        total += totals[i] * kept;
        sum += sums[i * D + d] * kept;
    }
    out[row * D + d] = T(sum / total);
}
