// Atomics, all of them relaxed, as Metal's are.
#pragma once
#include "matrix.h"

namespace metal {
enum memory_order { memory_order_relaxed };

template <class T>
struct atomic {
    T value;  // only the functions in this file may use it
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;

template <class T>
MSL_OURS T atomic_load_explicit(const volatile atomic<T>* at, memory_order) {
    msl_atomic(at, sizeof(T), true, false);
    return at->value;
}
template <class T, class U>
MSL_OURS void atomic_store_explicit(volatile atomic<T>* at, U value, memory_order) {
    msl_atomic(at, sizeof(T), false, true);
    at->value = (T)value;
}
#define MSL_ATOMIC(name, expression)                                                       \
    template <class T, class U>                                                            \
    MSL_OURS T atomic_##name##_explicit(volatile atomic<T>* at, U operand, memory_order) { \
        msl_atomic(at, sizeof(T), true, true);                                             \
        const T y = (T)operand, x = at->value;                                             \
        at->value = (T)(expression);                                                       \
        return x;                                                                          \
    }
MSL_ATOMIC(exchange, y)
MSL_ATOMIC(fetch_add, x + y)
MSL_ATOMIC(fetch_sub, x - y)
MSL_ATOMIC(fetch_min, min(x, y))
MSL_ATOMIC(fetch_max, max(x, y))
MSL_ATOMIC(fetch_and, x& y)
MSL_ATOMIC(fetch_or, x | y)
MSL_ATOMIC(fetch_xor, x ^ y)
#undef MSL_ATOMIC
template <class T, class U>
MSL_OURS bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* at, T* expected, U value, memory_order,
                                                    memory_order) {
    msl_atomic(at, sizeof(T), true, true);
    const T found = at->value;
    if (found == *expected) {
        at->value = (T)value;
        return true;
    }
    *expected = found;
    return false;
}

template <class T, size_t N>
struct array {
    T d[N];
    MSL_INLINE T& operator[](size_t i) { return d[i]; }
    MSL_INLINE const T& operator[](size_t i) const { return d[i]; }
    MSL_INLINE constexpr size_t size() const { return N; }
};
}  // namespace metal
