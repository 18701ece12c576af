// The functions that MLX defines before a kernel's text and that a kernel may use: our own code, with MLX's names and
// meanings.
#pragma once
#include "atomic.h"

typedef half float16_t;
typedef bfloat bfloat16_t;

template <class T>
struct Limits {
    static constexpr bool is_float = metal::is_floating_point_v<T>;
    static constexpr T finite_max = metal::numeric_limits<T>::max();
    static constexpr T finite_min = metal::numeric_limits<T>::lowest();
    static constexpr T max = is_float ? (T)__builtin_inff() : finite_max;
    static constexpr T min = is_float ? (T)-__builtin_inff() : finite_min;
};
template <>
struct Limits<bool> {
    static constexpr bool max = true, min = false;
};

template <bool condition, class T, class U>
using ConditionalType = std::conditional<condition, T, U>;

template <class T, class U>
inline T ceildiv(T n, U m) {
    return (n + m - 1) / m;
}

// Returns the offset in memory of the element with this row-major index.
template <class I = int64_t>
METAL_FUNC I elem_to_loc(I element, const int* shape, const int64_t* strides, int ndim) {
    I at = 0;
    for (int i = ndim - 1; i >= 0; i--) {
        at += element % shape[i] * (I)strides[i];
        element /= shape[i];
    }
    return at;
}
template <class I = int64_t>
METAL_FUNC I elem_to_loc(uint3 element, const int* shape, const int64_t* strides, int ndim) {
    I at = element.x * (I)strides[ndim - 1] + element.y * (I)strides[ndim - 2];
    return at + elem_to_loc<I>((I)element.z, shape, strides, ndim - 2);
}
