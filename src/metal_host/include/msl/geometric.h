// Functions of whole vectors, and the namespaces fast and precise, whose sines and cosines differ.
#pragma once
#include "integer.h"

namespace metal {
template <class T, enable_if_t<lanes_of<T>::n == 0, int> = 0>
MSL_INLINE T select(T a, T b, bool c) {
    return c ? b : a;
}
template <class T, int N>
MSL_INLINE vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
    for (int i = 0; i < N; i++) a.d[i] = c.d[i] ? b.d[i] : a.d[i];
    return a;
}
template <int N>
MSL_INLINE bool all(vec<bool, N> v) {
    for (int i = 0; i < N; i++)
        if (!v.d[i]) return false;
    return true;
}
template <int N>
MSL_INLINE bool any(vec<bool, N> v) {
    for (int i = 0; i < N; i++)
        if (v.d[i]) return true;
    return false;
}
MSL_INLINE bool all(bool b) { return b; }
MSL_INLINE bool any(bool b) { return b; }

template <class A, class B, enable_if_t<both<A, B>::fit() && both<A, B>::first && both<A, B>::second, int> = 0>
MSL_INLINE auto dot(const A& a, const B& b) {
    const typename both<A, B>::Vector p(a), q(b);
    typename both<A, B>::T s = p.d[0] * q.d[0];
    for (int i = 1; i < both<A, B>::n; i++) s += p.d[i] * q.d[i];
    return s;
}
template <class A, if_vector<A> = 0>
MSL_INLINE auto length_squared(const A& a) {
    return dot(a, a);
}
template <class A, if_vector<A> = 0>
MSL_INLINE auto length(const A& a) {
    return sqrt(dot(a, a));
}
template <class A, if_vector<A> = 0>
MSL_INLINE auto normalize(const A& a) {
    return a / length(a);
}
template <class A, class B>
MSL_INLINE auto distance(const A& a, const B& b) {
    return length(a - b);
}
template <class T>
MSL_INLINE vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
    return {a.d[1] * b.d[2] - a.d[2] * b.d[1], a.d[2] * b.d[0] - a.d[0] * b.d[2], a.d[0] * b.d[1] - a.d[1] * b.d[0]};
}

// clang-format off
#define MSL_IN_BOTH(X)                                                                                              \
    X(exp) X(exp2) X(exp10) X(log) X(log2) X(log10) X(sqrt) X(rsqrt) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) \
    X(asinh) X(acosh) X(atanh) X(floor) X(ceil) X(trunc) X(round) X(rint) X(fabs) X(abs) X(fract) X(saturate)        \
    X(sign) X(pow) X(powr) X(atan2) X(fmod) X(copysign) X(fdim) X(fmin) X(fmax) X(min) X(max) X(divide) X(fma)       \
    X(ldexp) X(frexp) X(modf) X(clamp) X(mix) X(dot) X(length) X(normalize) X(distance)
#define MSL_TURNING(X) X(sin) X(cos) X(tan) X(sinpi) X(cospi) X(tanpi) X(sincos)
// clang-format on
#define MSL_USING(name) using metal::name;
namespace precise {
MSL_IN_BOTH(MSL_USING)
MSL_TURNING(MSL_USING)
}  // namespace precise
namespace fast {
MSL_IN_BOTH(MSL_USING)

// Rounds a sine or cosine of x so that its error is as large as Apple allows: 2^-13 from -pi to pi, and unlimited
// elsewhere. The rounding is to a multiple of 2^-12, and of a larger step for larger x.
MSL_INLINE float msl_coarse(float x, float exact) {
    const float turns = __builtin_fabsf(x) / M_PI_F, step = 0x1p-12f * (turns > 1 ? turns : 1);
    return __builtin_rintf(exact / step) * step;
}
MSL_F1(sin, msl_coarse(x, __builtin_sinf(x)))
MSL_F1(cos, msl_coarse(x, __builtin_cosf(x)))
MSL_F1(tan, sin(x) / cos(x))
MSL_F1(sinpi, msl_coarse(x* M_PI_F, __builtin_sinf(x* M_PI_F)))
MSL_F1(cospi, msl_coarse(x* M_PI_F, __builtin_cosf(x* M_PI_F)))
MSL_F1(tanpi, tan(x* M_PI_F))
template <class T>
MSL_INLINE T sincos(T x, T& cosine) {
    cosine = cos(x);
    return sin(x);
}
}  // namespace fast
#undef MSL_TURNING
#undef MSL_USING
#undef MSL_IN_BOTH
}  // namespace metal
