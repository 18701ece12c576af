// Products of panels with weights in bfloat16, computed in float32. A group of a panel has 64 columns, with 16 numbers
// each.
#pragma once
#include "panels.h"

namespace tiny_llm {

struct Unquantised {
    using Input = float;
    static constexpr int INPUTS = GROUP, TILE = WIDTH == 16 ? 8 : 4, PANELS = 1;
    static constexpr int64_t PANEL_GROUP = GROUP * ROWS / 2;  // words

    static void prepare(const float* x, int64_t columns, Input* inputs, float*) { std::copy(x, x + columns, inputs); }

    static Sixteen column_of(const uint32_t* group, int64_t column) {
        return load_sixteen(reinterpret_cast<const bfloat16*>(group) + column * ROWS);
    }

    // Writes the 64 numbers of one row of a group.
    template <typename T>
    static void read_row(const uint32_t* group, int64_t row, T* to) {
        const auto* numbers = reinterpret_cast<const bfloat16*>(group);
        for (int i = 0; i < GROUP; i++) to[i] = float(numbers[i * ROWS + row]);
    }

    template <int M, int>
    [[gnu::noinline]] static void panel_product(const uint32_t* panel, int64_t groups, const Input* const* inputs,
                                                const float* const*, Sixteen* out) {
        // sums that do not wait for one another, as many as there are registers for
        constexpr int CHAINS = M * PARTS > 4 ? 1 : M * PARTS > 2 ? 2 : 4;
        Sixteen found[M][CHAINS] = {};
        for (int64_t i = 0; i < groups * INPUTS; i += GROUP, panel += PANEL_GROUP) {
            prefetch_after<Unquantised>(panel);
            for (int column = 0; column < GROUP; column += CHAINS)
                for (int chain = 0; chain < CHAINS; chain++) {
                    const Sixteen w = column_of(panel, column + chain);
                    for (int m = 0; m < M; m++)
                        for (int p = 0; p < PARTS; p++)
                            found[m][chain].part[p] += w.part[p] * inputs[m][i + column + chain];
                }
        }
        for (int m = 0; m < M; m++) {
            out[m] = found[m][0];
            for (int chain = 1; chain < CHAINS; chain++)
                for (int p = 0; p < PARTS; p++) out[m].part[p] += found[m][chain].part[p];
        }
    }
};

}  // namespace tiny_llm
