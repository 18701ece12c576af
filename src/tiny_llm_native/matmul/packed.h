// Whole products with weights in panels (panels.h), on all threads.
#pragma once
#include "panels.h"

namespace tiny_llm {

// Rows of x, prepared: `inputs` and `sums` of row m begin at m * columns / GROUP * INPUTS and m * columns / GROUP.
struct Rows {
    Input* inputs;
    float* sums;
    int64_t count, columns;

    Input* inputs_of(int64_t m) const { return inputs + m * columns / GROUP * INPUTS; }
    float* sums_of(int64_t m) const { return sums + m * columns / GROUP; }
};

template <int slot>
Rows rows_for(int64_t count, int64_t columns) {
    const int64_t groups = count * columns / GROUP;
    return {scratch<Input, slot>(groups * INPUTS), scratch<float, slot + 1>(groups), count, columns};
}

// Calls f<M>() with M = count, which is 1 to TILE.
template <int M = TILE, typename F>
void with_count(int64_t count, F f) {
    if constexpr (M > 1) {
        if (count < M) return with_count<M - 1>(count, f);
    }
    f.template operator()<M>();
}

// Rows of x from `first` on, up to TILE of them: where they are, one by one.
struct Tile {
    const Input* inputs[TILE];
    const float* sums[TILE];
    int64_t count;

    Tile(const Rows& x, int64_t first) : count(std::min<int64_t>(TILE, x.count - first)) {
        for (int64_t m = 0; m < count; m++) inputs[m] = x.inputs_of(first + m), sums[m] = x.sums_of(first + m);
    }
};

// With panels as they are: each is read once for TILE rows of x, and no time is lost on making it dense.
template <typename Use>
void multiply_panels(const Rows& x, const Panels& weight, const Threads& threads, Use use) {
    threads(weight.count(), 4, [&](int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; panel++)
            for (int64_t first = 0; first < x.count; first += TILE) {
                const Tile tile(x, first);
                with_count(tile.count, [&]<int M>() {
                    Sixteen out[M];
                    panel_product<M>(weight[panel], weight.groups(), tile.inputs, tile.sums, out);
                    for (int m = 0; m < M; m++) use(first + m, panel * ROWS, out[m]);
                });
            }
    });
}

#ifdef MAKES_DENSE
// With panels that are made dense first, for all rows of x.
template <typename Use>
void multiply_dense(const Rows& x, const Panels& weight, const Threads& threads, Use use) {
    const int64_t groups = weight.groups(), blocks = (weight.count() + DENSE_PANELS - 1) / DENSE_PANELS;
    threads(blocks, 1, [&](int64_t begin, int64_t end) {
        Dense* dense = scratch<Dense, 100>(groups * INPUTS * DENSE_PANELS * ROWS);
        for (int64_t block = begin; block < end; block++) {
            const int64_t panel = block * DENSE_PANELS;
            const int64_t panels = std::min<int64_t>(DENSE_PANELS, weight.count() - panel);
            for (int64_t p = 0; p < panels; p++) make_dense(weight[panel + p], groups, dense + p * ROWS);
            for (int64_t first = 0; first < x.count; first += TILE) {
                const Tile tile(x, first);
                with_count(tile.count, [&]<int M>() {
                    Sixteen out[M][DENSE_PANELS];
                    dense_product<M>(dense, groups, tile.inputs, out);
                    for (int m = 0; m < M; m++)
                        for (int64_t p = 0; p < panels; p++) use(first + m, (panel + p) * ROWS, out[m][p]);
                });
            }
        }
    });
}
#endif

// use(m, row, sixteen): 16 results of row m of x, with rows `row` and following of the weight.
template <typename Use>
void multiply(const Rows& x, const Panels& weight, const Threads& threads, Use use) {
#ifdef MAKES_DENSE
    if (x.count > TILE) return multiply_dense(x, weight, threads, use);
#endif
    multiply_panels(x, weight, threads, use);
}

}  // namespace tiny_llm
