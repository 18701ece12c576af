// Products of panels with AVX-512 and bfloat16: two products per lane at once, sums in float32.
#pragma once
#include <immintrin.h>

#include "panels.h"

namespace tiny_llm {

struct Bfloat16 : FourBits {
    using Input = uint32_t;  // columns c and c + 4 of x, in the order of the two halves of a word
    static constexpr int INPUTS = GROUP / 2, TILE = 8;

    // Writes pairs of columns, and the sum of each group.
    static void prepare(const float* x, int64_t columns, Input* inputs, float* sums) {
        const __m256i order = _mm256_set_epi16(15, 11, 14, 10, 13, 9, 12, 8, 7, 3, 6, 2, 5, 1, 4, 0);
        for (int64_t group = 0; group < columns / GROUP; group++) {
            floats total = {};
            for (int i = 0; i < GROUP; i += 16, x += 16, inputs += 8) {
                const __m256i narrow = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x));
                total += load(reinterpret_cast<const bfloat16*>(&narrow));
                _mm256_storeu_si256((__m256i*)inputs, _mm256_permutexvar_epi16(order, narrow));
            }
            sums[group] = _mm512_reduce_add_ps(total);
        }
    }

    // Multiplies M rows of x with one panel.
    template <int M, int>
    [[gnu::noinline]] static void panel_product(const uint32_t* panel, int64_t groups, const Input* const* inputs,
                                                const float* const* sums, Sixteen* out) {
        const __m512i levels = _mm512_load_si512(LEVELS);
        for (int m = 0; m < M; m++) out[m] = {};
        for (int64_t group = 0; group < groups; group++, panel += PANEL_GROUP) {
            prefetch_after<FourBits>(panel);
            __m512 even[M] = {}, odd[M] = {};
#pragma GCC unroll 8
            for (int line = 0; line < LINES; line++) {
                const __m512i word = (__m512i)line_of(panel, line, 0);
                const __m512bh w0 = (__m512bh)_mm512_permutexvar_epi16(word, levels);
                const __m512bh w1 = (__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi16(word, 4), levels);
                const __m512bh w2 = (__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi16(word, 8), levels);
                const __m512bh w3 = (__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi16(word, 12), levels);
#pragma GCC unroll 8
                for (int m = 0; m < M; m++) {
                    const Input* x = inputs[m] + group * INPUTS + line * 4;
                    even[m] = _mm512_dpbf16_ps(even[m], w0, (__m512bh)_mm512_set1_epi32(x[0]));
                    odd[m] = _mm512_dpbf16_ps(odd[m], w1, (__m512bh)_mm512_set1_epi32(x[1]));
                    even[m] = _mm512_dpbf16_ps(even[m], w2, (__m512bh)_mm512_set1_epi32(x[2]));
                    odd[m] = _mm512_dpbf16_ps(odd[m], w3, (__m512bh)_mm512_set1_epi32(x[3]));
                }
            }
            const floats scales = scales_of(panel).part[0], biases = biases_of(panel).part[0];
            for (int m = 0; m < M; m++) {
                out[m].part[0] += (even[m] + odd[m]) * scales;
                out[m].part[0] += biases * sums[m][group];
            }
        }
    }

    using Dense = uint32_t;  // a pair of columns
    static constexpr int DENSE_PANELS = 3, DENSE_SLABS = 1, DENSE_TILE = TILE;

    // Writes the columns of a panel, `apart` words from one pair to the next.
    [[gnu::noinline]] static void make_dense(const uint32_t* panel, int64_t groups, Dense* to, int64_t apart) {
        const __m512i levels = _mm512_load_si512(LEVELS), high = _mm512_set1_epi32(0xffff0000);
        for (int64_t group = 0; group < groups; group++, panel += PANEL_GROUP) {
            const floats scales = scales_of(panel).part[0], biases = biases_of(panel).part[0];
            for (int line = 0; line < LINES; line++) {
                __m512i word = (__m512i)line_of(panel, line, 0);
                for (int i = 0; i < 4; i++, word = _mm512_srli_epi16(word, 4), to += apart) {
                    const __m512i pair = _mm512_permutexvar_epi16(word, levels);
                    const __m512 low = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
                    const __m512 top = _mm512_castsi512_ps(_mm512_and_si512(pair, high));
                    const __m512bh both =
                        _mm512_cvtne2ps_pbh(_mm512_fmadd_ps(top, scales, biases), _mm512_fmadd_ps(low, scales, biases));
                    // the lower half of `both` is `low`, the upper half `top`: put the two numbers of a row together
                    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                                           23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
                    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, (__m512i)both));
                }
            }
        }
    }

    // Multiplies M rows of x with three dense panels.
    template <int M>
    [[gnu::noinline]] static void dense_product(const Dense* dense, int64_t groups, const Input* const* inputs,
                                                Sixteen (*out)[DENSE_PANELS]) {
        __m512 found[M][DENSE_PANELS] = {};  // stays in registers
        for (int64_t i = 0; i < groups * INPUTS; i++, dense += DENSE_PANELS * ROWS) {
            __m512bh w[DENSE_PANELS];
            for (int p = 0; p < DENSE_PANELS; p++) w[p] = (__m512bh)_mm512_loadu_si512(dense + p * ROWS);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++) {
                const __m512bh x = (__m512bh)_mm512_set1_epi32(inputs[m][i]);
#pragma GCC unroll 3
                for (int p = 0; p < DENSE_PANELS; p++) found[m][p] = _mm512_dpbf16_ps(found[m][p], w[p], x);
            }
        }
        for (int m = 0; m < M; m++)
            for (int p = 0; p < DENSE_PANELS; p++) out[m][p] = {found[m][p]};
    }

   private:
    alignas(64) static inline const uint16_t LEVELS[32] = {
        // 0 to 15 in bfloat16, twice, because the fifth bit of an index may have any value
        0,      0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120,
        0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0,      0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
        0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};
};

}  // namespace tiny_llm
