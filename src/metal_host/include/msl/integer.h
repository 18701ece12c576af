// Functions of integers, and functions of any scalar.
#pragma once
#include "math.h"

namespace metal {
#define MSL_MIN_MAX(T)                                             \
    MSL_INLINE constexpr T max(T x, T y) { return x < y ? y : x; } \
    MSL_INLINE constexpr T min(T x, T y) { return y < x ? y : x; }
MSL_MIN_MAX(char)
MSL_MIN_MAX(signed char)
MSL_MIN_MAX(uchar)
MSL_MIN_MAX(short)
MSL_MIN_MAX(ushort)
MSL_MIN_MAX(int)
MSL_MIN_MAX(uint)
MSL_MIN_MAX(long)
MSL_MIN_MAX(ulong)
#undef MSL_MIN_MAX
#define MSL_MIN_MAX(name)                                                                                         \
    template <class A, class B, enable_if_t<both<A, B>::fit() && is_integral_v<typename both<A, B>::T>, int> = 0> \
    MSL_INLINE auto name(const A& a, const B& b) {                                                                \
        const typename both<A, B>::Vector p(a), q(b);                                                             \
        typename both<A, B>::Vector r;                                                                            \
        for (int i = 0; i < both<A, B>::n; i++) r.d[i] = name(p.d[i], q.d[i]);                                    \
        return r;                                                                                                 \
    }
MSL_MIN_MAX(min)
MSL_MIN_MAX(max)
#undef MSL_MIN_MAX

template <class T>
MSL_INLINE T max3(T a, T b, T c) {
    return max(a, max(b, c));
}
template <class T>
MSL_INLINE T min3(T a, T b, T c) {
    return min(a, min(b, c));
}
template <class T, class L, class H>
MSL_INLINE auto clamp(T x, L low, H high) {
    return min(max(x, low), high);
}
template <class T, if_float<T> = 0>
MSL_INLINE T smoothstep(T a, T b, T x) {
    const T t = saturate((x - a) / (b - a));
    return t * t * (T(3) - T(2) * t);
}
template <class T, if_integer<T> = 0>
MSL_INLINE T abs(T x) {
    return x < T(0) ? (T)-x : x;
}
template <class T, if_integer<T> = 0>
MSL_INLINE T absdiff(T a, T b) {
    return a < b ? b - a : a - b;
}
template <class T, if_integer<T> = 0>
MSL_INLINE T popcount(T x) {
    return (T)__builtin_popcountll((make_unsigned_t<T>)x);
}
template <class T, if_integer<T> = 0>
MSL_INLINE T clz(T x) {
    const auto u = (make_unsigned_t<T>)x;
    return u ? (T)(__builtin_clzll(u) - (64 - 8 * (int)sizeof(T))) : (T)(8 * sizeof(T));
}
template <class T, if_integer<T> = 0>
MSL_INLINE T ctz(T x) {
    const auto u = (make_unsigned_t<T>)x;
    return u ? (T)__builtin_ctzll(u) : (T)(8 * sizeof(T));
}
template <class T, if_integer<T> = 0>
MSL_INLINE T reverse_bits(T x) {
    T r = 0;
    for (size_t i = 0; i < 8 * sizeof(T); i++) r = (T)((make_unsigned_t<T>)r << 1 | (x >> i & 1));
    return r;
}
template <class T, if_integer<T> = 0>
MSL_INLINE T rotate(T x, T n) {
    constexpr int bits = 8 * sizeof(T);
    const auto u = (make_unsigned_t<T>)x;
    const int k = (int)(n & (bits - 1));
    return k ? (T)(u << k | u >> (bits - k)) : x;
}
template <class T, if_integer<T> = 0>
MSL_INLINE T mulhi(T x, T y) {
    return (T)(((__int128)x * (__int128)y) >> (8 * sizeof(T)));
}
template <class T, if_integer<T> = 0>
MSL_INLINE T mul24(T a, T b) {
    return a * b;
}
template <class T, if_integer<T> = 0>
MSL_INLINE T mad24(T a, T b, T c) {
    return a * b + c;
}
template <class T, if_integer<T> = 0>
MSL_INLINE T extract_bits(T x, uint offset, uint bits) {
    constexpr uint all = 8 * sizeof(T);
    if (bits == 0) return T(0);
    return (T)((T)((make_unsigned_t<T>)x << (all - offset - bits)) >> (all - bits));
}
template <class T, if_integer<T> = 0>
MSL_INLINE T insert_bits(T x, T from, uint offset, uint bits) {
    constexpr uint all = 8 * sizeof(T);
    using U = make_unsigned_t<T>;
    const U mask = bits >= all ? (U)~U(0) : (U)((((U)1 << bits) - 1) << offset);
    return (T)(((U)x & ~mask) | ((U)((U)from << offset) & mask));
}
template <class T, if_integer<T> = 0>
MSL_INLINE T addsat(T a, T b) {
    T r;
    if (!__builtin_add_overflow(a, b, &r)) return r;
    return b < 0 ? numeric_limits<T>::min() : numeric_limits<T>::max();
}
template <class T, if_integer<T> = 0>
MSL_INLINE T subsat(T a, T b) {
    T r;
    if (!__builtin_sub_overflow(a, b, &r)) return r;
    return b < 0 ? numeric_limits<T>::max() : numeric_limits<T>::min();
}

#define MSL_INTEGER_EACH(name)                                                    \
    template <class A, if_vector<A> = 0, if_integer<typename lanes_of<A>::T> = 0> \
    MSL_INLINE auto name(const A& a) {                                            \
        return each([](auto e) { return name(e); }, a);                           \
    }
MSL_INTEGER_EACH(popcount)
MSL_INTEGER_EACH(clz)
MSL_INTEGER_EACH(ctz)
#undef MSL_INTEGER_EACH
}  // namespace metal
