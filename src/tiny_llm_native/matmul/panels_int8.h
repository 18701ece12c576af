// Panels (panels.h) with AVX-512 VNNI: four products a lane at once, of levels and of x rounded to 8 bits. To take
// levels out of a panel costs little beside products with TILE rows, so that no panel is made dense.
#pragma once
#include <immintrin.h>

namespace tiny_llm {

using Sixteen = __m512;  // one number of each row of a panel
using Input = int32_t;   // of a group of x: two words for each line, and the scale
constexpr int INPUTS = 2 * LINES + 1;
constexpr int TILE = 8;

inline Sixteen zero16() { return _mm512_setzero_ps(); }
inline Sixteen widen(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
inline Sixteen scales_of(const uint32_t* group) { return widen(_mm256_loadu_si256((const __m256i*)group)); }
inline Sixteen biases_of(const uint32_t* group) { return widen(_mm256_loadu_si256((const __m256i*)(group + 8))); }
inline void to_floats(float* to, Sixteen x) { _mm512_storeu_ps(to, x); }

// x as the kernels want it: a scale for each group, by which its largest number is 127; the columns 0, 2, 4, 6 and 1,
// 3, 5, 7 of each line, as a line has them in the lower and the upper halves of its bytes; and the sum of each group.
inline void prepare(const float* x, int64_t columns, Input* inputs, float* sums) {
    const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(15, 13, 11, 9, 14, 12, 10, 8, 7, 5, 3, 1, 6, 4, 2, 0));
    for (int64_t group = 0; group < columns / GROUP; group++, x += GROUP, inputs += INPUTS) {
        Sixteen part[4], largest = zero16();
        for (int i = 0; i < 4; i++) {
            part[i] = _mm512_loadu_ps(x + 16 * i);
            largest = _mm512_max_ps(largest, _mm512_abs_ps(part[i]));
        }
        const float scale = _mm512_reduce_max_ps(largest) / 127;
        const Sixteen times = _mm512_set1_ps(scale > 0 ? 1 / scale : 0);
        alignas(64) int8_t levels[GROUP];
        for (int i = 0; i < 4; i++) {
            const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(part[i], times));
            _mm_store_si128((__m128i*)(levels + 16 * i), _mm512_cvtsepi32_epi8(rounded));
        }
        const __m512i all = _mm512_load_si512(levels);
        _mm512_storeu_si512(inputs, _mm512_shuffle_epi8(all, order));
        std::memcpy(inputs + 2 * LINES, &scale, sizeof scale);
        const __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), all);
        sums[group] = scale * _mm512_reduce_add_epi32(sum);
    }
}

// M rows of x with one panel. The sums of a group are whole numbers, and exact.
template <int M>
inline void panel_product(const uint32_t* panel, int64_t groups, const Input* const* inputs, const float* const* sums,
                          Sixteen* out) {
    const __m512i half = _mm512_set1_epi8(15);
    for (int m = 0; m < M; m++) out[m] = zero16();
    for (int64_t group = 0; group < groups; group++, panel += PANEL_GROUP) {
        __m512i found[M];
        for (int m = 0; m < M; m++) found[m] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int line = 0; line < LINES; line++) {
            const __m512i word = _mm512_loadu_si512(panel + ROWS + line * ROWS);
            const __m512i lower = _mm512_and_si512(word, half);
            const __m512i upper = _mm512_and_si512(_mm512_srli_epi16(word, 4), half);
#pragma GCC unroll 8
            for (int m = 0; m < M; m++) {
                const Input* x = inputs[m] + group * INPUTS + 2 * line;
                found[m] = _mm512_dpbusd_epi32(found[m], lower, _mm512_set1_epi32(x[0]));
                found[m] = _mm512_dpbusd_epi32(found[m], upper, _mm512_set1_epi32(x[1]));
            }
        }
        const Sixteen scales = scales_of(panel), biases = biases_of(panel);
        for (int m = 0; m < M; m++) {
            float scale;
            std::memcpy(&scale, inputs[m] + group * INPUTS + 2 * LINES, sizeof scale);
            const Sixteen product = _mm512_mul_ps(_mm512_cvtepi32_ps(found[m]), scales);
            out[m] = _mm512_fmadd_ps(product, _mm512_set1_ps(scale), out[m]);
            out[m] = _mm512_fmadd_ps(biases, _mm512_set1_ps(sums[m][group]), out[m]);
        }
    }
}

}  // namespace tiny_llm
