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
    // Week 3 Day 4 Task 3: what belongs here is yours to write.
    // Chapter: Paged attention.
    // Test: ./course test w3d4.3
    // task w3d4.3 end
}
