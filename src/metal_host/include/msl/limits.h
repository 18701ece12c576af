// numeric_limits, and constants.
#pragma once
#include "constants.h"
#include "vector.h"

namespace metal {
template <class T>
struct numeric_limits {
    static_assert(is_integral_v<T>, "numeric_limits: not a scalar type of Metal");
    static constexpr bool is_integer = true, is_signed = is_signed_v<T>;
    static constexpr int digits = sizeof(T) * 8 - is_signed;
    static constexpr T max() { return (T)(~0ull >> (64 - digits)); }
    static constexpr T min() { return is_signed ? (T)(-max() - 1) : T(0); }
    static constexpr T lowest() { return min(); }
};
template <>
struct numeric_limits<bool> {
    static constexpr bool max() { return true; }
    static constexpr bool min() { return false; }
    static constexpr bool lowest() { return false; }
};
#define MSL_LIMITS(T, largest, smallest, precision, bits)                \
    template <>                                                          \
    struct numeric_limits<T> {                                           \
        static constexpr bool is_integer = false, is_signed = true;      \
        static constexpr int digits = bits;                              \
        static constexpr T max() { return (T)(largest); }                \
        static constexpr T min() { return (T)(smallest); }               \
        static constexpr T lowest() { return (T)(-(largest)); }          \
        static constexpr T epsilon() { return (T)(precision); }          \
        static constexpr T infinity() { return (T)__builtin_inff(); }    \
        static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); } \
    };
MSL_LIMITS(float, __FLT_MAX__, __FLT_MIN__, __FLT_EPSILON__, 24)
MSL_LIMITS(half, 65504.0f, 6.103515625e-05f, 9.765625e-04f, 11)
MSL_LIMITS(bfloat, 3.3895313892515355e38f, 1.1754943508222875e-38f, 0.0078125f, 8)
#undef MSL_LIMITS
}  // namespace metal
