// The processor's instruction for a dot product of 8-bit numbers: four products, of levels from 0 to 15 with numbers
// from -127 to 127, are added to each lane of 32 bits. Each kind of processor has its own.
#pragma once
#include "panels.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#define TINY_LLM_HAS_BFLOAT16
#endif

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define TINY_LLM_HAS_INT8
#include <immintrin.h>
namespace tiny_llm {
using Dots = ints;
constexpr int SAFE_LINES = LINES;  // of a group whose products Dots can hold
inline Dots add_dots(Dots sums, words levels, ints x) {
    return (Dots)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)levels, (__m512i)x);
}
inline ints total(Dots sums) { return sums; }
}  // namespace tiny_llm

#elif defined(__AVXVNNI__)
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

#elif defined(__AVX2__)
#define TINY_LLM_HAS_INT8
#include <immintrin.h>
namespace tiny_llm {
typedef int16_t Dots __attribute__((vector_size(WIDTH * 4)));  // two sums a lane, each of every other product
constexpr int SAFE_LINES = 4;                                  // 2 * 4 sums of two products: 8 * 2 * 15 * 127 < 2^15
inline Dots add_dots(Dots sums, words levels, ints x) {
    sums += (Dots)_mm256_maddubs_epi16((__m256i)levels, (__m256i)x);
    asm("" : "+x"(sums));  // one after the other: GCC would keep all products until their end, and has no registers
    return sums;
}
inline ints total(Dots sums) { return (ints)_mm256_madd_epi16((__m256i)sums, _mm256_set1_epi16(1)); }
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
