// Dot products of 8-bit numbers, with the instructions of each kind of processor. add_dots multiplies levels from 0 to
// 15 by numbers from -127 to 127 and adds four products to each lane of 32 bits.
#pragma once
#include "panels.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#define TINY_LLM_HAS_BFLOAT16
#endif

#if defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(TINY_LLM_HAS_BFLOAT16)
#define TINY_LLM_HAS_TILES
#endif

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define TINY_LLM_HAS_INT8
#include <immintrin.h>
namespace tiny_llm {
using Dots = ints;
constexpr int SAFE_LINES = LINES;  // how many lines of a group can be added before Dots overflow
inline Dots add_dots(Dots sums, words levels, ints x) {
    return (Dots)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)levels, (__m512i)x);
}
inline ints total(Dots sums) { return sums; }
}  // namespace tiny_llm

#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
#define TINY_LLM_HAS_INT8
#include <immintrin.h>
namespace tiny_llm {
using Dots = ints;
constexpr int SAFE_LINES = LINES;
inline Dots add_dots(Dots sums, words levels, ints x) {
    return (Dots)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)levels, (__m256i)x);
}
inline ints total(Dots sums) { return sums; }
}  // namespace tiny_llm

#elif defined(__AVX512BW__) || defined(__AVX2__) && !defined(__AVX512F__)
#define TINY_LLM_HAS_INT8
#include <immintrin.h>
namespace tiny_llm {
typedef int16_t Dots __attribute__((vector_size(WIDTH * 4)));  // two sums for each lane
constexpr int SAFE_LINES = 4;                                  // 4 lines add 16 products to a sum: 16 * 15 * 127 < 2^15
#ifdef __AVX512BW__
inline Dots products(words levels, ints x) { return (Dots)_mm512_maddubs_epi16((__m512i)levels, (__m512i)x); }
inline ints total(Dots sums) { return (ints)_mm512_madd_epi16((__m512i)sums, _mm512_set1_epi16(1)); }
#else
inline Dots products(words levels, ints x) { return (Dots)_mm256_maddubs_epi16((__m256i)levels, (__m256i)x); }
inline ints total(Dots sums) { return (ints)_mm256_madd_epi16((__m256i)sums, _mm256_set1_epi16(1)); }
#endif
inline Dots add_dots(Dots sums, words levels, ints x) {
    sums += products(levels, x);
    asm("" : "+v"(sums));  // adds now, because GCC would keep all products, in more registers than there are
    return sums;
}
}  // namespace tiny_llm

#elif defined(__ARM_FEATURE_DOTPROD)
#define TINY_LLM_HAS_INT8
#include <arm_neon.h>
namespace tiny_llm {
using Dots = ints;
constexpr int SAFE_LINES = LINES;
inline Dots add_dots(Dots sums, words levels, ints x) {
    return (Dots)vdotq_s32((int32x4_t)sums, (int8x16_t)levels, (int8x16_t)x);
}
inline ints total(Dots sums) { return sums; }
}  // namespace tiny_llm
#endif
