// Vectors of floats as wide as the machine's registers. GCC and Clang compile them for every processor.
#pragma once
#include "kernel.h"

namespace tiny_llm {

#if defined(__AVX512F__)
constexpr int WIDTH = 16;  // floats
#elif defined(__AVX__)
constexpr int WIDTH = 8;
#else
constexpr int WIDTH = 4;
#endif

typedef float floats __attribute__((vector_size(WIDTH * 4)));
typedef int32_t ints __attribute__((vector_size(WIDTH * 4)));
typedef uint32_t words __attribute__((vector_size(WIDTH * 4)));
typedef uint16_t shorts __attribute__((vector_size(WIDTH * 2)));
typedef _Float16 halves __attribute__((vector_size(WIDTH * 2)));

inline floats splat(float value) { return value - floats{}; }

inline floats load(const float* from) {
    floats x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
inline floats load(const bfloat16* from) {
    shorts bits;
    std::memcpy(&bits, from, sizeof bits);
#if defined(__AVX512F__) && !defined(__clang__)  // one instruction; GCC takes four for the other code
    typedef int16_t signed_shorts __attribute__((vector_size(WIDTH * 2)));
    words wide = (words)__builtin_ia32_pmovzxwd512_mask((signed_shorts)bits, ints{}, 0xffff) << 16;
#else
    words wide = __builtin_convertvector(bits, words) << 16;
#endif
    floats x;
    std::memcpy(&x, &wide, sizeof x);
    return x;
}
inline floats load(const float16* from) {
    halves x;
    std::memcpy(&x, from, sizeof x);
    return __builtin_convertvector(x, floats);
}
inline void store(float* to, floats x) { std::memcpy(to, &x, sizeof x); }
inline void store(bfloat16* to, floats x) {
    words bits;
    std::memcpy(&bits, &x, sizeof bits);
    words is_nan = (words)((bits & 0x7fffffff) > 0x7f800000);
    words rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    shorts narrow = __builtin_convertvector((rounded & ~is_nan) | (0x7fc0 & is_nan), shorts);
    std::memcpy(to, &narrow, sizeof narrow);
}
inline void store(float16* to, floats x) {
    halves narrow = __builtin_convertvector(x, halves);
    std::memcpy(to, &narrow, sizeof narrow);
}

inline floats max(floats a, floats b) { return a > b ? a : b; }
inline floats min(floats a, floats b) { return a < b ? a : b; }

inline float sum(floats x) {  // in pairs: additions that wait for each other are slow
    typedef float four __attribute__((vector_size(16)));
    four parts[WIDTH / 4], total = {};
    std::memcpy(parts, &x, sizeof x);
    for (four part : parts) total += part;
    return (total[0] + total[2]) + (total[1] + total[3]);
}
inline float max(floats x) {
    float largest = x[0];
    for (int i = 1; i < WIDTH; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

// e^x, accurate to 2 units in the last place; below -87.3 it is 0, above 88.7 infinity.
inline floats exp(floats x) {
    floats clamped = min(max(x, splat(-87.3f)), splat(88.7f));
    floats scaled = clamped * 1.44269504f;                          // x / ln 2 = n + a fraction
    floats n = (scaled + 12582912.f) - 12582912.f;                  // to the nearest integer
    floats r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;  // x - n ln 2, ln 2 in two parts
    floats p = splat(1.9875691500e-4f);                             // e^r by a polynomial
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    ints power = (__builtin_convertvector(n, ints) + 127) << 23;  // 2^n
    floats two_to_n;
    std::memcpy(&two_to_n, &power, sizeof power);
    floats y = p * two_to_n;
    y = x < -87.3f ? floats{} : y;
    return x > 88.7f ? splat(__builtin_inff()) : x == x ? y : x;  // NaN stays NaN
}

}  // namespace tiny_llm
