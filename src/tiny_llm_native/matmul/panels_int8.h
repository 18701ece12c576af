// Products of panels in 8 bits: rows of x are rounded (instructions.h). Unpacking a panel costs little compared with
// the products of TILE rows, so no panel is made dense.
#pragma once
#include "instructions.h"

namespace tiny_llm {

struct Int8 : FourBits {
    using Input = int32_t;  // of a group of x: two words for each line, and the scale
    static constexpr int INPUTS = 2 * LINES + 1, TILE = WIDTH == 16 ? 8 : 4;
    static constexpr int PANELS = WIDTH == 16 && SAFE_LINES == LINES ? 2 : 1;  // as many as registers hold sums for

    // Rounds each group to whole numbers, scaled so that the largest magnitude is 127, and writes them in the order of
    // a line's levels: the lower halves of bytes are columns 0, 2, 4 and 6, and the upper halves are columns 1, 3, 5
    // and 7. After the numbers comes their scale.
    static void prepare(const float* x, int64_t columns, Input* inputs, float* sums) {
        for (int64_t group = 0; group < columns / GROUP; group++, x += GROUP, inputs += INPUTS) {
            floats largest = {};
            for (int i = 0; i < GROUP; i += WIDTH) largest = max(largest, max(load(x + i), -load(x + i)));
            const float scale = max(largest) / 127, times = scale > 0 ? 1 / scale : 0;
            int32_t rounded[GROUP], sum = 0;
            for (int i = 0; i < GROUP; i += WIDTH) {
                const floats near = (load(x + i) * times + 12582912.f) - 12582912.f;
                const ints whole = __builtin_convertvector(near, ints);
                std::memcpy(rounded + i, &whole, sizeof whole);
            }
            auto* bytes = reinterpret_cast<int8_t*>(inputs);
            for (int line = 0; line < LINES; line++)
                for (int i = 0; i < 8; i++) bytes[line * 8 + i] = rounded[line * 8 + i % 4 * 2 + i / 4];
            for (int32_t number : rounded) sum += number;
            std::memcpy(inputs + 2 * LINES, &scale, sizeof scale);
            sums[group] = scale * sum;
        }
    }

    // Multiplies M rows of x with P panels. The sums of a group are exact, because they are sums of whole numbers.
    template <int M, int P>
    [[gnu::noinline]] static void panel_product(const uint32_t* panel, int64_t groups, const Input* const* inputs,
                                                const float* const* sums, Sixteen* out) {
        constexpr int REGISTERS = P * PARTS;  // for one number of each row of the panels
        const int64_t next = groups * PANEL_GROUP;
        for (int i = 0; i < M * P; i++) out[i] = {};
        for (int64_t group = 0; group < groups; group++, panel += PANEL_GROUP) {
            for (int p = 0; p < P; p++) prefetch_after<FourBits>(panel + p * next);
            ints found[M][REGISTERS] = {};
#pragma GCC unroll 2
            for (int first = 0; first < LINES; first += SAFE_LINES) {
                Dots dots[M][REGISTERS] = {};
#pragma GCC unroll 8
                for (int line = first; line < first + SAFE_LINES; line++) {
                    words lower[REGISTERS], upper[REGISTERS];
                    for (int r = 0; r < REGISTERS; r++) {
                        const words levels = line_of(panel + r / PARTS * next, line, r % PARTS);
                        lower[r] = levels & 0x0f0f0f0f, upper[r] = levels >> 4 & 0x0f0f0f0f;
                    }
#pragma GCC unroll 8
                    for (int m = 0; m < M; m++) {
                        const Input* x = inputs[m] + group * INPUTS + 2 * line;
                        const ints even = x[0] - ints{}, odd = x[1] - ints{};
#pragma GCC unroll 4
                        for (int r = 0; r < REGISTERS; r++)
                            dots[m][r] = add_dots(add_dots(dots[m][r], lower[r], even), upper[r], odd);
                    }
                }
                for (int m = 0; m < M; m++)
                    for (int r = 0; r < REGISTERS; r++) found[m][r] += total(dots[m][r]);
            }
            for (int p = 0; p < P; p++) {
                const Sixteen scales = scales_of(panel + p * next), biases = biases_of(panel + p * next);
                for (int m = 0; m < M; m++) {
                    float scale;
                    std::memcpy(&scale, inputs[m] + group * INPUTS + 2 * LINES, sizeof scale);
                    for (int i = 0; i < PARTS; i++) {
                        floats& to = out[m * P + p].part[i];
                        to += __builtin_convertvector(found[m][p * PARTS + i], floats) * scales.part[i] * scale;
                        to += biases.part[i] * sums[m][group];
                    }
                }
            }
        }
    }
};

}  // namespace tiny_llm
