// Functions of floating-point numbers. half and bfloat are computed in float and rounded once. The functions are as
// exact as precise:: requires. fast:: has the same functions, except for the sines and cosines in geometric.h.
#pragma once
#include "limits.h"

namespace metal {
#define MSL_F1(name, expression)                                        \
    MSL_INLINE float name(float x) { return expression; }               \
    MSL_INLINE half name(half x) { return (half)name((float)x); }       \
    MSL_INLINE bfloat name(bfloat x) { return (bfloat)name((float)x); } \
    template <class A, if_vector<A> = 0>                                \
    MSL_INLINE auto name(const A& a) {                                  \
        return each([](auto e) { return name(e); }, a);                 \
    }
#define MSL_F2(name, expression)                                                            \
    MSL_INLINE float name(float x, float y) { return expression; }                          \
    MSL_INLINE half name(half x, half y) { return (half)name((float)x, (float)y); }         \
    MSL_INLINE bfloat name(bfloat x, bfloat y) { return (bfloat)name((float)x, (float)y); } \
    template <class A, class B, enable_if_t<both<A, B>::fit(), int> = 0>                    \
    MSL_INLINE auto name(const A& a, const B& b) {                                          \
        const typename both<A, B>::Vector p(a), q(b);                                       \
        typename both<A, B>::Vector r;                                                      \
        for (int i = 0; i < both<A, B>::n; i++) r.d[i] = name(p.d[i], q.d[i]);              \
        return r;                                                                           \
    }

MSL_F1(exp, __builtin_expf(x))
MSL_F1(exp2, __builtin_exp2f(x))
MSL_F1(exp10, __builtin_powf(10.0f, x))
MSL_F1(log, __builtin_logf(x))
MSL_F1(log2, __builtin_log2f(x))
MSL_F1(log10, __builtin_log10f(x))
MSL_F1(sqrt, __builtin_sqrtf(x))
MSL_F1(rsqrt, 1.0f / __builtin_sqrtf(x))
MSL_F1(sin, __builtin_sinf(x))
MSL_F1(cos, __builtin_cosf(x))
MSL_F1(tan, __builtin_tanf(x))
MSL_F1(sinpi, __builtin_sinf(x* M_PI_F))
MSL_F1(cospi, __builtin_cosf(x* M_PI_F))
MSL_F1(tanpi, __builtin_tanf(x* M_PI_F))
MSL_F1(asin, __builtin_asinf(x))
MSL_F1(acos, __builtin_acosf(x))
MSL_F1(atan, __builtin_atanf(x))
MSL_F1(sinh, __builtin_sinhf(x))
MSL_F1(cosh, __builtin_coshf(x))
MSL_F1(tanh, __builtin_tanhf(x))
MSL_F1(asinh, __builtin_asinhf(x))
MSL_F1(acosh, __builtin_acoshf(x))
MSL_F1(atanh, __builtin_atanhf(x))
MSL_F1(floor, __builtin_floorf(x))
MSL_F1(ceil, __builtin_ceilf(x))
MSL_F1(trunc, __builtin_truncf(x))
MSL_F1(round, __builtin_roundf(x))
MSL_F1(rint, __builtin_rintf(x))
MSL_F1(fabs, __builtin_fabsf(x))
MSL_F1(abs, __builtin_fabsf(x))
MSL_F1(fract, x - __builtin_floorf(x))
MSL_F1(saturate, x > 0.0f ? x < 1.0f ? x : 1.0f : 0.0f)
MSL_F1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f)
MSL_F2(pow, __builtin_powf(x, y))
MSL_F2(powr, __builtin_powf(x, y))
MSL_F2(atan2, __builtin_atan2f(x, y))
MSL_F2(fmod, __builtin_fmodf(x, y))
MSL_F2(copysign, __builtin_copysignf(x, y))
MSL_F2(fdim, __builtin_fdimf(x, y))
MSL_F2(step, y < x ? 0.0f : 1.0f)
MSL_F2(nextafter, __builtin_nextafterf(x, y))
MSL_F2(divide, x / y)

// A minimum or maximum may return the other argument and so hide an uninitialised one. So it checks both arguments.
#define MSL_CHOICE(name, expression)                                                                  \
    MSL_F2(msl_##name, expression)                                                                    \
    template <class T>                                                                                \
    MSL_INLINE T msl_set_##name(T x, T y) {                                                           \
        if (msl_is_unset({x}) | msl_is_unset({y})) msl_fail("unset", "", {"", 0, 0});                 \
        return msl_##name(x, y);                                                                      \
    }                                                                                                 \
    MSL_INLINE float name(float x, float y) { return msl_set_##name(x, y); }                          \
    MSL_INLINE half name(half x, half y) { return msl_set_##name(x, y); }                             \
    MSL_INLINE bfloat name(bfloat x, bfloat y) { return msl_set_##name(x, y); }                       \
    template <class A, class B,                                                                       \
              enable_if_t<both<A, B>::fit() && is_floating_point_v<typename both<A, B>::T>, int> = 0> \
    MSL_INLINE auto name(const A& a, const B& b) {                                                    \
        const typename both<A, B>::Vector p(a), q(b);                                                 \
        if (msl_is_unset(p.d) | msl_is_unset(q.d)) msl_fail("unset", "", {"", 0, 0});                 \
        return msl_##name(p, q);                                                                      \
    }
MSL_CHOICE(fmin, __builtin_fminf(x, y))
MSL_CHOICE(fmax, __builtin_fmaxf(x, y))
MSL_CHOICE(min, __builtin_fminf(x, y))
MSL_CHOICE(max, __builtin_fmaxf(x, y))
#undef MSL_CHOICE
#undef MSL_F2

#define MSL_IS(name)                                    \
    template <class T, if_float<T> = 0>                 \
    MSL_INLINE bool name(T x) {                         \
        return __builtin_##name((float)x);              \
    }                                                   \
    template <class A, if_vector<A> = 0>                \
    MSL_INLINE auto name(const A& a) {                  \
        return each([](auto e) { return name(e); }, a); \
    }
MSL_IS(isnan)
MSL_IS(isinf)
MSL_IS(isfinite)
MSL_IS(isnormal)
MSL_IS(signbit)
#undef MSL_IS

template <class T, if_float<T> = 0>
MSL_INLINE T fma(T a, T b, T c) {
    return (T)__builtin_fmaf((float)a, (float)b, (float)c);
}
template <class A, if_vector<A> = 0>
MSL_INLINE A fma(A a, A b, A c) {
    A r;
    for (int i = 0; i < lanes_of<A>::n; i++) r.d[i] = fma(a.d[i], b.d[i], c.d[i]);
    return r;
}
template <class T, if_float<T> = 0>
MSL_INLINE T ldexp(T x, int e) {
    return (T)__builtin_ldexpf((float)x, e);
}
template <class T, if_float<T> = 0>
MSL_INLINE T frexp(T x, int& e) {
    return (T)__builtin_frexpf((float)x, &e);
}
template <class T, if_float<T> = 0>
MSL_INLINE int ilogb(T x) {
    return __builtin_ilogbf((float)x);
}
template <class T, if_float<T> = 0>
MSL_INLINE T modf(T x, T& whole) {
    whole = trunc(x);
    return x - whole;
}
template <class T, if_float<T> = 0>
MSL_INLINE T sincos(T x, T& cosine) {
    cosine = cos(x);
    return sin(x);
}
template <class T, class U, class W>
MSL_INLINE auto mix(T x, U y, W a) {
    return x + (y - x) * a;
}
}  // namespace metal
