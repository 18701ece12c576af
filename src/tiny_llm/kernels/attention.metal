// FlashAttention: softmax(Q K^T * scale) V, whose L x S scores are never in memory as a whole.
//
// query and out: heads of L rows of D numbers of type T; key and value: heads of S rows, each for `group` heads of
// queries. Inputs may be views: strides say how far apart two heads, two rows and two numbers of a row are, counted in
// numbers. causal: whether the queries are at the last L of S positions, so that a query sees no key after its own
// position.

constant constexpr uint LANES = 32;
constant constexpr uint SIDE = 8;                          // rows of a simdgroup_float8x8, and queries per simdgroup
constant constexpr uint QUERIES = 32;                      // queries per threadgroup: one block
constant constexpr uint THREADS = QUERIES / SIDE * LANES;  // per threadgroup
constant constexpr uint PART = 64;                         // keys per simdgroup, where simdgroups share the keys

// Returns number d of row j of a head, or 0 if d is past the row's D numbers.
template <uint D, typename T>
float number(const device T* head, const constant int64_t* strides, uint j, uint d) {
    return D % LANES == 0 || d < D ? float(head[j * strides[1] + d * strides[2]]) : 0;
}

// The row and the first column of the two numbers that a lane holds of a simdgroup_float8x8; the second number is in
// the next column. Apple does not document this, but MLX's own kernels rely on it.
uint row_of(uint lane) { return (lane / 4 & 4) + lane / 2 % 4; }
uint column_of(uint lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

// Return the largest number, and the sum, of a row of such matrices: four lanes each hold a part of the row.
float max_of_row(float x) {
    x = max(x, simd_shuffle_xor(x, 1));
    return max(x, simd_shuffle_xor(x, 8));
}
float sum_of_row(float x) {
    x += simd_shuffle_xor(x, 1);
    return x + simd_shuffle_xor(x, 8);
}

// Loads COUNT of a head's S rows as float, from row `first` on, with all threads of the threadgroup. Rows past the last
// become zeros, and zeros follow the D numbers of each row.
template <uint COUNT, uint D, uint STRIDE, typename T>
void load_rows(const device T* head, const constant int64_t* strides, uint first, uint S, threadgroup float* to,
               uint t) {
    constexpr uint WIDTH = (D + SIDE - 1) / SIDE * SIDE;
    for (uint i = t; i < COUNT * WIDTH; i += THREADS) {
        const uint j = i / WIDTH, d = i % WIDTH;
        to[j * STRIDE + d] = first + j < S && d < D ? float(head[(first + j) * strides[1] + d * strides[2]]) : 0;
    }
}

// A threadgroup computes QUERIES queries of a head, for all keys that they see, one block of KEYS keys at a time.
KERNEL(attend_blocks) {
    constexpr uint KEYS = D > 128 ? 8 : 16;  // as many keys and values as fit into 32 KiB
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

// A simdgroup computes one row with one part of the keys. Row r of a key head is query r % L of the r / L-th query head
// that shares it. The results of a row for a part are the largest score, the sum of exp(score - largest), and the sum
// of the values times these weights.
KERNEL(attend_part) {
    constexpr uint SHARE = (D + LANES - 1) / LANES;  // neighbouring numbers of a row per lane
    const uint L = query_shape[1], S = key_shape[1], part = threadgroup_position_in_grid.x;
    const uint head = thread_position_in_grid.z, row = head * threads_per_grid.y + thread_position_in_grid.y;
    const uint place = row * threadgroups_per_grid.x + part;  // where the results go
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

// A thread computes number d of a row's result: it joins the results of all parts.
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
