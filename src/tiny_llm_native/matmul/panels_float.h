// Products of panels in float32, on any processor.
#pragma once
#include "panels.h"

namespace tiny_llm {

struct Float32 : FourBits {
    using Input = float;
    static constexpr int INPUTS = GROUP, TILE = WIDTH == 16 ? 8 : WIDTH == 8 ? 6 : 4;

    static void prepare(const float* x, int64_t columns, Input* inputs, float* sums) {
        std::copy(x, x + columns, inputs);
        for (int64_t group = 0; group < columns / GROUP; group++) {
            sums[group] = 0;
            for (int i = 0; i < GROUP; i++) sums[group] += x[group * GROUP + i];
        }
    }

    template <int M, int>
    [[gnu::noinline]] static void panel_product(const uint32_t* panel, int64_t groups, const Input* const* inputs,
                                                const float* const* sums, Sixteen* out) {
        for (int m = 0; m < M; m++) out[m] = {};
        for (int64_t group = 0; group < groups; group++, panel += PANEL_GROUP) {
            prefetch_after<FourBits>(panel);
            Sixteen found[M] = {};
            for (int line = 0; line < LINES; line++) {
                for (int p = 0; p < PARTS; p++) {
                    const words word = line_of(panel, line, p);
#pragma GCC unroll 8
                    for (int i = 0; i < 8; i++) {
                        const floats level = __builtin_convertvector((ints)(word >> (4 * i) & 15), floats);
                        for (int m = 0; m < M; m++) found[m].part[p] += level * inputs[m][group * GROUP + line * 8 + i];
                    }
                }
            }
            const Sixteen scales = scales_of(panel), biases = biases_of(panel);
            for (int m = 0; m < M; m++)
                for (int p = 0; p < PARTS; p++)
                    out[m].part[p] += found[m].part[p] * scales.part[p] + biases.part[p] * sums[m][group];
        }
    }

    using Dense = float;
    static constexpr int DENSE_PANELS = WIDTH == 16 ? 3 : 1;  // as many as registers hold sums for
    static constexpr int DENSE_SLABS = 1, DENSE_TILE = TILE;

    // Writes the columns of a panel, `apart` numbers from one column to the next.
    [[gnu::noinline]] static void make_dense(const uint32_t* panel, int64_t groups, Dense* to, int64_t apart) {
        for (int64_t group = 0; group < groups; group++, panel += PANEL_GROUP) {
            const Sixteen scales = scales_of(panel), biases = biases_of(panel);
            for (int line = 0; line < LINES; line++)
                for (int i = 0; i < 8; i++, to += apart)
                    for (int p = 0; p < PARTS; p++) {
                        const words word = line_of(panel, line, p);
                        const floats level = __builtin_convertvector((ints)(word >> (4 * i) & 15), floats);
                        store(to + p * WIDTH, level * scales.part[p] + biases.part[p]);
                    }
        }
    }

    template <int M>
    [[gnu::noinline]] static void dense_product(const Dense* dense, int64_t groups, const Input* const* inputs,
                                                Sixteen (*out)[DENSE_PANELS]) {
        constexpr int REGISTERS = DENSE_PANELS * PARTS;
        floats found[M][REGISTERS] = {};  // stays in registers
        for (int64_t i = 0; i < groups * INPUTS; i++, dense += DENSE_PANELS * ROWS) {
            floats w[REGISTERS];
            for (int r = 0; r < REGISTERS; r++) w[r] = load(dense + r * WIDTH);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++)
#pragma GCC unroll 4
                for (int r = 0; r < REGISTERS; r++) found[m][r] += w[r] * inputs[m][i];
        }
        for (int m = 0; m < M; m++)
            for (int r = 0; r < REGISTERS; r++) out[m][r / PARTS].part[r % PARTS] = found[m][r];
    }
};

}  // namespace tiny_llm
