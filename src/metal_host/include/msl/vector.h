// vec<T, N>, its swizzles, and arithmetic element by element.
#pragma once
#include "numbers.h"
#include "unset.h"

// source.py defines these with the swizzles that the kernel uses: MSL_SWIZZLE(name, indices...) each.
#ifndef MSL_SWIZZLES_2
#define MSL_SWIZZLES_2
#define MSL_SWIZZLES_3
#define MSL_SWIZZLES_4
#endif

namespace metal {
template <class T, int N>
struct vec;

template <class T, int N, int... I>
struct swizzle {  // such as v.zx: a view of some elements, in the vector's memory
    T d[N];
    using Vector = vec<T, (int)sizeof...(I)>;

    swizzle() = default;
    swizzle(const swizzle&) = default;
    MSL_INLINE operator Vector() const { return Vector(d[I]...); }
    MSL_INLINE swizzle& operator=(const Vector& v) {
        const Vector copy = v;  // v may be a view of the same vector
        int k = 0;
        ((d[I] = copy.d[k++]), ...);
        return *this;
    }
    MSL_INLINE swizzle& operator=(const swizzle& other) { return *this = Vector(other); }
    template <class S, int M, int... J>
    MSL_INLINE swizzle& operator=(const swizzle<S, M, J...>& other) {
        return *this = Vector(vec<S, (int)sizeof...(J)>(other));
    }
#define MSL_OPERATOR(op)                               \
    template <class B>                                 \
    MSL_INLINE swizzle& operator op## = (const B& b) { \
        return *this = Vector(*this) op b;             \
    }
    MSL_OPERATOR(+)
    MSL_OPERATOR(-)
    MSL_OPERATOR(*)
    MSL_OPERATOR(/)
#undef MSL_OPERATOR
};

template <class A>
struct lanes_of {  // the number of elements of a vector; 0 for a scalar
    static constexpr int n = 0;
    using T = A;
};
template <class U, int N>
struct lanes_of<vec<U, N>> {
    static constexpr int n = N;
    using T = U;
};
template <class U, int N, int... I>
struct lanes_of<swizzle<U, N, I...>> {
    static constexpr int n = sizeof...(I);
    using T = U;
};

#define MSL_SWIZZLE(name, ...) swizzle<T, MSL_N, __VA_ARGS__> name;
template <class T, int N>
struct elements;
template <class T>
struct alignas(2 * sizeof(T)) elements<T, 2> {
    static constexpr int MSL_N = 2;
    union {
        T d[2];
        struct {
            T x, y;
        };
        struct {
            T r, g;
        };
        MSL_SWIZZLES_2
    };
};
template <class T>
struct alignas(4 * sizeof(T)) elements<T, 3> {
    static constexpr int MSL_N = 3;
    union {
        T d[3];
        struct {
            T x, y, z;
        };
        struct {
            T r, g, b;
        };
        MSL_SWIZZLES_3
    };
};
template <class T>
struct alignas(4 * sizeof(T)) elements<T, 4> {
    static constexpr int MSL_N = 4;
    union {
        T d[4];
        struct {
            T x, y, z, w;
        };
        struct {
            T r, g, b, a;
        };
        MSL_SWIZZLES_4
    };
};
#undef MSL_SWIZZLE

template <class T, int N>
struct vec : elements<T, N> {
    using elements<T, N>::d;

    vec() = default;
    MSL_INLINE vec(const vec& o) { copy(d, o.d); }
    MSL_INLINE vec& operator=(const vec& o) {
        const vec value(o);
        copy(d, value.d);
        return *this;
    }
    template <class S, std::enable_if_t<std::is_convertible<S, T>::value && lanes_of<S>::n == 0, int> = 0>
    MSL_INLINE vec(S s) {
        for (int i = 0; i < N; i++) d[i] = (T)s;
    }
    template <class U, std::enable_if_t<!std::is_same<U, T>::value, int> = 0>
    MSL_INLINE explicit vec(const vec<U, N>& o) {
        for (int i = 0; i < N; i++) d[i] = (T)o.d[i];
    }
    template <class A, class B, class... R>
    MSL_INLINE vec(const A& a, const B& b, const R&... r) {
        static_assert(((count<A>() + count<B>()) + ... + count<R>()) == N, "wrong number of elements for this vector");
        int k = 0;
        put(k, a);
        put(k, b);
        (put(k, r), ...);
    }

    MSL_INLINE T& operator[](int i) {
        check(i);
        return d[i];
    }
    MSL_INLINE const T& operator[](int i) const {
        check(i);
        return d[i];
    }
#define MSL_OPERATOR(op)                           \
    template <class B>                             \
    MSL_INLINE vec& operator op## = (const B& b) { \
        return *this = *this op b;                 \
    }
    MSL_OPERATOR(+)
    MSL_OPERATOR(-)
    MSL_OPERATOR(*)
    MSL_OPERATOR(/)
    MSL_OPERATOR(%)
    MSL_OPERATOR(&)
    MSL_OPERATOR(|)
    MSL_OPERATOR(^)
    MSL_OPERATOR(<<)
    MSL_OPERATOR(>>)
#undef MSL_OPERATOR

   private:
    static MSL_INLINE void copy(T* to, const T* from) {  // in one load and store, but without padding
        using Whole = typename whole<N == 3 ? 0 : sizeof(T) * N>::type;
        if constexpr (std::is_void<Whole>::value) {
            for (int i = 0; i < N; i++) to[i] = from[i];
        } else {
            *(Whole*)to = *(const Whole*)from;
        }
    }
    template <class A>
    static constexpr int count() {
        return lanes_of<A>::n ? lanes_of<A>::n : 1;
    }
    static MSL_INLINE void check(int i) {
        if ((unsigned)i >= (unsigned)N) msl_fail("vector", "", {"", 0, 0});
    }
    template <class A>
    MSL_INLINE void put(int& k, const A& a) {
        if constexpr (lanes_of<A>::n == 0) {
            d[k++] = (T)a;
        } else {
            const vec<typename lanes_of<A>::T, lanes_of<A>::n> v(a);
            for (int i = 0; i < lanes_of<A>::n; i++) d[k++] = (T)v.d[i];
        }
    }
};

template <class A>
using if_vector = enable_if_t<(lanes_of<A>::n > 0), int>;
template <class A>
MSL_INLINE auto as_vector(const A& a) {
    return vec<typename lanes_of<A>::T, lanes_of<A>::n>(a);
}

template <class A, class B>
struct both {  // the operands of a binary operation, at least one of which is a vector
    static constexpr bool first = lanes_of<A>::n > 0, second = lanes_of<B>::n > 0;
    static constexpr int n = first ? lanes_of<A>::n : lanes_of<B>::n;
    using T = conditional_t<first, typename lanes_of<A>::T, typename lanes_of<B>::T>;
    using Vector = vec<T, (n ? n : 2)>;
    static constexpr bool fit() {
        if (first && second) return lanes_of<A>::n == lanes_of<B>::n && is_same_v<T, typename lanes_of<B>::T>;
        return first ? is_convertible_v<B, T> : second && is_convertible_v<A, T>;
    }
};

#define MSL_OPERATOR(op, R)                                              \
    template <class A, class B, enable_if_t<both<A, B>::fit(), int> = 0> \
    MSL_INLINE auto operator op(const A& a, const B& b) {                \
        using X = both<A, B>;                                            \
        const typename X::Vector p(a), q(b);                             \
        if (msl_is_unset(p.d)) msl_fail("unset", "", {"", 0, 0});        \
        vec<R, X::n> r;                                                  \
        for (int i = 0; i < X::n; i++) r.d[i] = (R)(p.d[i] op q.d[i]);   \
        return r;                                                        \
    }
MSL_OPERATOR(+, typename X::T)
MSL_OPERATOR(-, typename X::T)
MSL_OPERATOR(*, typename X::T)
MSL_OPERATOR(/, typename X::T)
MSL_OPERATOR(%, typename X::T)
MSL_OPERATOR(&, typename X::T)
MSL_OPERATOR(|, typename X::T)
MSL_OPERATOR(^, typename X::T)
MSL_OPERATOR(<<, typename X::T)
MSL_OPERATOR(>>, typename X::T)
MSL_OPERATOR(<, bool)
MSL_OPERATOR(>, bool)
MSL_OPERATOR(<=, bool)
MSL_OPERATOR(>=, bool)
MSL_OPERATOR(==, bool)
MSL_OPERATOR(!=, bool)
MSL_OPERATOR(&&, bool)
MSL_OPERATOR(||, bool)
#undef MSL_OPERATOR

#define MSL_OPERATOR(op, R)                                               \
    template <class A, if_vector<A> = 0>                                  \
    MSL_INLINE auto operator op(const A& a) {                             \
        const auto v = as_vector(a);                                      \
        vec<R, lanes_of<A>::n> r;                                         \
        for (int i = 0; i < lanes_of<A>::n; i++) r.d[i] = (R)(op v.d[i]); \
        return r;                                                         \
    }
MSL_OPERATOR(-, typename lanes_of<A>::T)
MSL_OPERATOR(~, typename lanes_of<A>::T)
MSL_OPERATOR(!, bool)
#undef MSL_OPERATOR

template <class F, class A>
MSL_INLINE auto each(F f, const A& a) {
    const auto v = as_vector(a);
    vec<decltype(f(v.d[0])), lanes_of<A>::n> r;
    for (int i = 0; i < lanes_of<A>::n; i++) r.d[i] = f(v.d[i]);
    return r;
}
}  // namespace metal

#define MSL_VECTORS(T)             \
    typedef metal::vec<T, 2> T##2; \
    typedef metal::vec<T, 3> T##3; \
    typedef metal::vec<T, 4> T##4; \
    namespace metal {              \
    using ::T##2;                  \
    using ::T##3;                  \
    using ::T##4;                  \
    }
MSL_VECTORS(bool)
MSL_EACH_NUMBER(MSL_VECTORS)
#undef MSL_VECTORS

template <class To, class From>
MSL_INLINE To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type: the two types differ in size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
namespace metal {
using ::as_type;
}
