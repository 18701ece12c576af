// Attention for the rows of many requests, whose keys and values lie in the pages of a pool.
//
// query: for each row of the step heads of D numbers of type T; keys and values: pages, in each of them heads, in each
// of these page_size rows of D numbers. tables: of each request its pages, in the order of its positions. rows: of each
// row of the step its request, and how many positions it sees, from the first on.

constant constexpr uint LANES = 32;
constant constexpr uint PART = 64;  // keys for a simdgroup

// Number d of a row of D numbers, and zeros behind. Rows count from the first of page 0.
template <uint D, typename T>
float number(const device T* first, uint row, uint d) {
    return D % LANES == 0 || d < D ? float(first[size_t(row) * D + d]) : 0;
}

// A row of the step, one of its heads, and one part of the keys, by a simdgroup. What a row has of a part: the largest
// score, the sum of exp(score - largest), and that of the values times these.
KERNEL(attend_part) {
    constexpr uint SHARE = (D + LANES - 1) / LANES;  // neighbours in a row, for a lane
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
