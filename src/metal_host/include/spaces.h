// Declarations of everything that a kernel may use, with real address spaces. clang only checks a kernel against them,
// to find pointers to the wrong address space (spaces.py). Errors for other reasons are ignored.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#include "msl/constants.h"
#include "msl/numbers.h"

#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread  // the default address space
#define kernel
#define METAL_FUNC inline
#define __METAL__ 1
#define __METAL_VERSION__ 310

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;
typedef half float16_t;
typedef bfloat bfloat16_t;

template <class T>
using msl_type = T;
#define MSL_THREADGROUP(name, ...) threadgroup msl_type<__VA_ARGS__>& name = *(threadgroup msl_type<__VA_ARGS__>*)0;
template <class T, class... A>
T msl_make(A...);  // float4(x, 1)   becomes   msl_make<float4>(x, 1)

// (device float4*)x   becomes   msl_cast<device float4*>() % x, because C++ allows a cast to change the address space.
template <class T>
struct msl_cast {};
template <class T>
struct msl_without_space {
    typedef T type;
};
#define MSL_CAST(space)                 \
    template <class T>                  \
    struct msl_without_space<space T> { \
        typedef T type;                 \
    };                                  \
    template <class T, class From>      \
    space T* operator%(msl_cast<space T*>, space From*);
MSL_CAST(device)
MSL_CAST(constant)
MSL_CAST(threadgroup)
#undef MSL_CAST
template <class T>
constexpr bool msl_in_thread = std::is_same<T, typename msl_without_space<T>::type>::value;
template <class T, class From, std::enable_if_t<msl_in_thread<T> && msl_in_thread<From>, int> = 0>
T* operator%(msl_cast<T*>, From*);
template <class To, class From, std::enable_if_t<!std::is_pointer<std::decay_t<From>>::value, int> = 0>
To operator%(msl_cast<To>, const From&);

namespace metal {
using namespace std;
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
template <class T>
constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>;
template <class T>
using remove_addrspace_t = typename msl_without_space<T>::type;
template <class T>
struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T, size_t N>
struct array {
    T d[N];
    T& operator[](size_t i);
    const T& operator[](size_t i) const;
};
}  // namespace metal

#define MSL_VECTORS(T)                      \
    typedef metal::vec<T, 2> T##2;          \
    typedef metal::vec<T, 3> T##3;          \
    typedef metal::vec<T, 4> T##4;          \
    typedef metal::vec<T, 2> packed_##T##2; \
    typedef metal::vec<T, 3> packed_##T##3; \
    typedef metal::vec<T, 4> packed_##T##4; \
    namespace metal {                       \
    using ::T##2;                           \
    using ::T##3;                           \
    using ::T##4;                           \
    }
MSL_VECTORS(bool)
MSL_EACH_NUMBER(MSL_VECTORS)
#undef MSL_VECTORS

template <class T, class A>
T as_type(A);

MSL_USING_NUMBERS
#undef MSL_USING_NUMBERS
namespace metal {
using ::as_type;
template <class T>
struct numeric_limits {
    static constexpr int digits = 8 * sizeof(T);
    static constexpr T max() { return T(1); }
    static constexpr T min() { return T(0); }
    static constexpr T lowest() { return T(0); }
    static constexpr T epsilon() { return T(0); }
    static constexpr T infinity() { return T(0); }
    static constexpr T quiet_NaN() { return T(0); }
};
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

// Functions whose result has the type of the first argument. Where this is not exact, no pointer depends on it.
#define MSL_SAME(name)             \
    template <class A, class... R> \
    A name(A, R...);
// clang-format off
#define MSL_FUNCTIONS(X)                                                                                              \
    X(exp) X(exp2) X(exp10) X(log) X(log2) X(log10) X(sqrt) X(rsqrt) X(sin) X(cos) X(tan) X(sinpi) X(cospi) X(tanpi)   \
    X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(floor) X(ceil) X(trunc) X(round)      \
    X(rint) X(fabs) X(abs) X(fract) X(saturate) X(sign) X(pow) X(powr) X(atan2) X(fmod) X(copysign) X(fdim) X(fmin)    \
    X(fmax) X(min) X(max) X(divide) X(fma) X(ldexp) X(clamp) X(mix) X(normalize) X(step) X(smoothstep) X(nextafter)
#define MSL_MORE_FUNCTIONS(X)                                                                                         \
    X(select) X(cross) X(max3) X(min3) X(absdiff) X(popcount) X(clz) X(ctz) X(reverse_bits) X(rotate) X(mulhi)         \
    X(mul24) X(mad24) X(extract_bits) X(insert_bits) X(addsat) X(subsat) X(isnan) X(isinf) X(isfinite) X(isnormal)     \
    X(signbit) X(simd_sum) X(simd_product) X(simd_max) X(simd_min) X(simd_and) X(simd_or) X(simd_xor)                  \
    X(simd_broadcast) X(simd_broadcast_first) X(simd_shuffle) X(simd_shuffle_xor) X(simd_shuffle_up)                   \
    X(simd_shuffle_down) X(simd_shuffle_rotate_up) X(simd_shuffle_rotate_down) X(simd_shuffle_and_fill_up)             \
    X(simd_shuffle_and_fill_down) X(simd_prefix_inclusive_sum) X(simd_prefix_exclusive_sum)                            \
    X(simd_prefix_inclusive_product) X(simd_prefix_exclusive_product) X(quad_sum) X(quad_product) X(quad_max)          \
    X(quad_min) X(quad_broadcast) X(quad_shuffle) X(quad_shuffle_xor) X(quad_shuffle_up) X(quad_shuffle_down)
// clang-format on
MSL_FUNCTIONS(MSL_SAME)
MSL_MORE_FUNCTIONS(MSL_SAME)
namespace fast {
MSL_FUNCTIONS(MSL_SAME)
}
namespace precise {
MSL_FUNCTIONS(MSL_SAME)
}
#undef MSL_SAME
#undef MSL_FUNCTIONS
#undef MSL_MORE_FUNCTIONS
template <class T>
T sincos(T, T&);
template <class T>
T frexp(T, int&);
template <class T>
T modf(T, T&);
template <class T, int N>
T dot(vec<T, N>, vec<T, N>);
template <class T, int N>
T length(vec<T, N>);
template <class T, int N>
T length_squared(vec<T, N>);
template <class T, int N>
T distance(vec<T, N>, vec<T, N>);
template <class A>
bool all(A);
template <class A>
bool any(A);
struct simd_vote {
    using vote_t = uint64_t;
    explicit operator vote_t() const;
    bool all() const;
    bool any() const;
};
simd_vote simd_ballot(bool);
simd_vote simd_active_threads_mask();
bool simd_all(bool);
bool simd_any(bool);
bool simd_is_first();

enum memory_order { memory_order_relaxed };
template <class T>
struct atomic {
    T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;
#define MSL_ATOMIC(name)                                     \
    template <class T, class... A>                           \
    T atomic_##name(const volatile device atomic<T>*, A...); \
    template <class T, class... A>                           \
    T atomic_##name(const volatile threadgroup atomic<T>*, A...);
MSL_ATOMIC(load_explicit)
MSL_ATOMIC(store_explicit)
MSL_ATOMIC(exchange_explicit)
MSL_ATOMIC(compare_exchange_weak_explicit)
MSL_ATOMIC(fetch_add_explicit)
MSL_ATOMIC(fetch_sub_explicit)
MSL_ATOMIC(fetch_min_explicit)
MSL_ATOMIC(fetch_max_explicit)
MSL_ATOMIC(fetch_and_explicit)
MSL_ATOMIC(fetch_or_explicit)
MSL_ATOMIC(fetch_xor_explicit)
#undef MSL_ATOMIC

template <class T, int Columns, int Rows = Columns>
struct simdgroup_matrix {
    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T);
    vec<T, 2>& thread_elements();
    const vec<T, 2>& thread_elements() const;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int C, int R>
simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
#define MSL_MATRIX(space)                                                             \
    template <class T, class... A>                                                    \
    void simdgroup_load(simdgroup_matrix<T, 8, 8>&, const space T*, ulong = 8, A...); \
    template <class T, class... A>                                                    \
    void simdgroup_store(simdgroup_matrix<T, 8, 8>, space T*, ulong = 8, A...);
MSL_MATRIX(device)
MSL_MATRIX(threadgroup)
#undef MSL_MATRIX
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>&, const simdgroup_matrix<A, 8, 8>&,
                                   const simdgroup_matrix<B, 8, 8>&, const simdgroup_matrix<C, 8, 8>&);
template <class D, class A, class B>
void simdgroup_multiply(simdgroup_matrix<D, 8, 8>&, const simdgroup_matrix<A, 8, 8>&, const simdgroup_matrix<B, 8, 8>&);
template <class T>
simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8>&, const simdgroup_matrix<T, 8, 8>&);
}  // namespace metal

template <class T>
struct Limits {
    static constexpr T max = T(1), min = T(0), finite_max = T(1), finite_min = T(0);
};
template <bool condition, class T, class U>
using ConditionalType = std::conditional<condition, T, U>;
template <class T, class U>
T ceildiv(T, U);
template <class I = int64_t, class E, class... A>
I elem_to_loc(E, A...);
