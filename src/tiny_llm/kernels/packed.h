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

// use(m, row, sixteen): 16 results of row m of x, with rows `row` and following of the weight.
template <typename Use>
void multiply(const Rows& x, const Panels& weight, const Threads& threads, Use use) {
    const int64_t groups = weight.groups();
    auto product = [&](auto& inputs, auto& sums, int64_t first, int64_t count) {
        for (int64_t m = 0; m < count; m++) inputs[m] = x.inputs_of(first + m), sums[m] = x.sums_of(first + m);
    };
    if (x.count <= TILE) {  // the weight is read once, and no time is to be lost on making it dense
        threads(weight.count(), 4, [&](int64_t begin, int64_t end) {
            const Input* inputs[TILE];
            const float* sums[TILE];
            product(inputs, sums, 0, x.count);
            with_count(x.count, [&]<int M>() {
                for (int64_t panel = begin; panel < end; panel++) {
                    Sixteen out[M];
                    panel_product<M>(weight[panel], groups, inputs, sums, out);
                    for (int m = 0; m < M; m++) use(m, panel * ROWS, out[m]);
                }
            });
        });
        return;
    }
    const int64_t blocks = (weight.count() + DENSE_PANELS - 1) / DENSE_PANELS;
    threads(blocks, 1, [&](int64_t begin, int64_t end) {
        Dense* dense = scratch<Dense, 100>(groups * INPUTS * DENSE_PANELS * ROWS);
        for (int64_t block = begin; block < end; block++) {
            const int64_t panels = std::min<int64_t>(DENSE_PANELS, weight.count() - block * DENSE_PANELS);
            for (int64_t p = 0; p < panels; p++) make_dense(weight[block * DENSE_PANELS + p], groups, dense + p * ROWS);
            for (int64_t first = 0; first < x.count; first += TILE) {
                const Input* inputs[TILE];
                const float* sums[TILE];
                const int64_t count = std::min<int64_t>(TILE, x.count - first);
                product(inputs, sums, first, count);
                with_count(count, [&]<int M>() {
                    Sixteen out[M][DENSE_PANELS];
                    dense_product<M>(dense, groups, inputs, out);
                    for (int m = 0; m < M; m++)
                        for (int64_t p = 0; p < panels; p++)
                            use(first + m, (block * DENSE_PANELS + p) * ROWS, out[m][p]);
                });
            }
        }
    });
}

}  // namespace tiny_llm
