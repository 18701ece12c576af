// Constants, and numeric_limits.
#pragma once
#include "vector.h"

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF INFINITY
#define MAXFLOAT __FLT_MAX__
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define MAXHALF ((half)65504.0f)
#define HALF_MAX MAXHALF
#define HALF_MIN ((half)6.103515625e-05f)
#define HALF_EPSILON ((half)9.765625e-04f)
#define CHAR_BIT 8
#define SHRT_MAX 32767
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX (2u * __INT_MAX__ + 1u)
#define M_E_F 2.718281828f
#define M_LOG2E_F 1.442695041f
#define M_LOG10E_F 0.4342944819f
#define M_LN2_F 0.6931471806f
#define M_LN10_F 2.302585093f
#define M_PI_F 3.141592654f
#define M_PI_2_F 1.570796327f
#define M_PI_4_F 0.7853981634f
#define M_1_PI_F 0.3183098862f
#define M_2_PI_F 0.6366197724f
#define M_2_SQRTPI_F 1.128379167f
#define M_SQRT2_F 1.414213562f
#define M_SQRT1_2_F 0.7071067812f

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
