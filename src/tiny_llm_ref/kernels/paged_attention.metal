// Attention for the rows of many requests, whose keys and values are in the pages of a pool.
//
// query: rows of the step, each with heads of D numbers of type T. keys and values: pages, each with heads of page_size
// rows of D numbers. tables: the pages of each request, in the order of its positions. rows: for each row of the step,
// its request and how many positions it sees, from the first on.

constant constexpr uint LANES = 32;
constant constexpr uint PART = 64;  // keys per simdgroup

// Returns number d of a row, or 0 if d is past the row's D numbers. Rows are counted from the first row of page 0.
template <uint D, typename T>
float number(const device T* first, uint row, uint d) {
    return D % LANES == 0 || d < D ? float(first[size_t(row) * D + d]) : 0;
}

// A simdgroup computes one row of the step, in one of its heads, with one part of the keys. The results of a row for a
// part are the largest score, the sum of exp(score - largest), and the sum of the values times these weights.
KERNEL(attend_part) {
    constexpr uint SHARE = (D + LANES - 1) / LANES;  // neighbouring numbers of a row per lane
    const uint heads = threads_per_grid.y, kv_heads = keys_shape[1], page_size = keys_shape[2];
    const uint part = threadgroup_position_in_grid.x, head = thread_position_in_grid.y, row = thread_position_in_grid.z;
    const uint kv_head = head / (heads / kv_heads), place = (row * heads + head) * threadgroups_per_grid.x + part;
    const uint lane = thread_index_in_simdgroup, first_number = lane * SHARE;
    const uint request = rows[row * 2], sees = rows[row * 2 + 1];

    float numbers[SHARE], sum[SHARE] = {}, largest = -INFINITY, total = 0;
    for (uint i = 0; i < SHARE; i++) numbers[i] = scale * number<D>(query, row * heads + head, first_number + i);
    // task w3d4.3 begin
    const uint end = min((part + 1) * PART, sees);
    for (uint first = part * PART; first < end; first += LANES) {
        const uint count = min(LANES, end - first);
        const uint position = first + min(lane, count - 1);  // of the lane's key
        const uint page = tables[request * tables_shape[1] + position / page_size];
        const uint of_lane = (page * kv_heads + kv_head) * page_size + position % page_size;
        float score = -INFINITY;
        for (uint j = 0; j < count; j++) {
            const uint key = simd_broadcast(of_lane, j);
            float dot = 0;
            for (uint i = 0; i < SHARE; i++) dot += numbers[i] * number<D>(keys, key, first_number + i);
            dot = simd_sum(dot);
            if (lane == j) score = dot;
        }
        const float most = max(largest, simd_max(score));
        const float weight = exp(score - most), kept = exp(largest - most);
        total = total * kept + simd_sum(weight);
        largest = most;
        for (uint i = 0; i < SHARE; i++) sum[i] *= kept;
        for (uint j = 0; j < count; j++) {
            const uint value = simd_broadcast(of_lane, j);
            const float of_key = simd_broadcast(weight, j);
            for (uint i = 0; i < SHARE; i++) sum[i] += of_key * number<D>(values, value, first_number + i);
        }
    }
    if (lane == 0) {
        maxima[place] = largest;
        totals[place] = total;
    }
    for (uint i = 0; i < SHARE && first_number + i < D; i++) sums[place * D + first_number + i] = sum[i];
    // task w3d4.3 end
}
