// Packed vectors, such as packed_float3: they have no padding, and the alignment of their elements.
#pragma once
#include "geometric.h"

namespace metal {
template <class T, int N>
struct packed_elements;
template <class T>
struct packed_elements<T, 2> {
    union {
        T d[2];
        struct {
            T x, y;
        };
    };
};
template <class T>
struct packed_elements<T, 3> {
    union {
        T d[3];
        struct {
            T x, y, z;
        };
    };
};
template <class T>
struct packed_elements<T, 4> {
    union {
        T d[4];
        struct {
            T x, y, z, w;
        };
    };
};

template <class T, int N>
struct packed_vec : packed_elements<T, N> {
    using packed_elements<T, N>::d;
    using Vector = vec<T, N>;

    packed_vec() = default;
    MSL_INLINE packed_vec(const Vector& v) {
        for (int i = 0; i < N; i++) d[i] = v.d[i];
    }
    template <class... A, enable_if_t<std::is_constructible<Vector, const A&...>::value, int> = 0>
    MSL_INLINE explicit packed_vec(const A&... a) : packed_vec(Vector(a...)) {}
    MSL_INLINE operator Vector() const {
        Vector v;
        for (int i = 0; i < N; i++) v.d[i] = d[i];
        return v;
    }
    MSL_INLINE T& operator[](int i) {
        check(i);
        return d[i];
    }
    MSL_INLINE const T& operator[](int i) const {
        check(i);
        return d[i];
    }
#define MSL_OPERATOR(op)                                  \
    template <class B>                                    \
    MSL_INLINE packed_vec& operator op## = (const B& b) { \
        return *this = Vector(*this) op b;                \
    }
    MSL_OPERATOR(+)
    MSL_OPERATOR(-)
    MSL_OPERATOR(*)
    MSL_OPERATOR(/)
#undef MSL_OPERATOR

   private:
    static MSL_INLINE void check(int i) {
        if ((unsigned)i >= (unsigned)N) msl_fail("vector", "", {"", 0, 0});
    }
};

template <class U, int N>
struct lanes_of<packed_vec<U, N>> {
    static constexpr int n = N;
    using T = U;
};
}  // namespace metal

#define MSL_PACKED(T)                              \
    typedef metal::packed_vec<T, 2> packed_##T##2; \
    typedef metal::packed_vec<T, 3> packed_##T##3; \
    typedef metal::packed_vec<T, 4> packed_##T##4;
MSL_EACH_NUMBER(MSL_PACKED)
#undef MSL_PACKED
