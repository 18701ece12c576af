// bfloat: the upper half of a float. As in Metal, it converts to float implicitly, and from float only explicitly.
#pragma once
#include "base.h"

#define MSL_IF_INTEGER(I) std::enable_if_t<std::is_integral<I>::value, int> = 0

struct bfloat {
    uint16_t bits;

    bfloat() = default;
    template <class I, MSL_IF_INTEGER(I)>
    MSL_INLINE constexpr bfloat(I i) : bits(rounded((float)i)) {}
    MSL_INLINE explicit constexpr bfloat(float f) : bits(rounded(f)) {}
    MSL_INLINE explicit constexpr bfloat(half h) : bits(rounded((float)h)) {}
    MSL_INLINE constexpr operator float() const { return __builtin_bit_cast(float, (uint32_t)bits << 16); }
    MSL_INLINE constexpr bfloat operator-() const { return __builtin_bit_cast(bfloat, (uint16_t)(bits ^ 0x8000)); }
    MSL_INLINE bfloat& operator++() { return *this = bfloat((float)*this + 1.0f); }
    MSL_INLINE bfloat& operator--() { return *this = bfloat((float)*this - 1.0f); }

#define MSL_OPERATOR(op)                                                                                        \
    friend MSL_INLINE constexpr bfloat operator op(bfloat x, bfloat y) { return bfloat((float)x op(float) y); } \
    template <class I, MSL_IF_INTEGER(I)>                                                                       \
    friend MSL_INLINE constexpr bfloat operator op(bfloat x, I y) {                                             \
        return x op bfloat(y);                                                                                  \
    }                                                                                                           \
    template <class I, MSL_IF_INTEGER(I)>                                                                       \
    friend MSL_INLINE constexpr bfloat operator op(I x, bfloat y) {                                             \
        return bfloat(x) op y;                                                                                  \
    }                                                                                                           \
    template <class A>                                                                                          \
    MSL_INLINE bfloat& operator op## = (A y) {                                                                  \
        return *this = bfloat((float)*this op(float) y);                                                        \
    }
    MSL_OPERATOR(+)
    MSL_OPERATOR(-)
    MSL_OPERATOR(*)
    MSL_OPERATOR(/)
#undef MSL_OPERATOR

   private:
    static MSL_INLINE constexpr uint16_t rounded(float f) {  // to nearest, ties to even
        uint32_t u = __builtin_bit_cast(uint32_t, f);
        if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
        return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
};
