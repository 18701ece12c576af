// The values of a thread's uninitialised variables. In a checked run, the compiler fills variables with a pattern
// (-ftrivial-auto-var-init). On a GPU, such a variable has whatever value its memory had before.
#pragma once
#include "traits.h"

namespace metal {
template <class T>
constexpr uint32_t msl_unset = 0;  // the pattern is unknown
#ifdef __clang__                   // NaN
template <>
constexpr uint32_t msl_unset<float> = 0xffffffff;
template <>
constexpr uint32_t msl_unset<half> = 0xffff;
#else
template <>
constexpr uint32_t msl_unset<float> = 0xfefefefe;  // -1.69e38: adding an ordinary number does not change it
template <>
constexpr uint32_t msl_unset<half> = 0xfefe;
template <>
constexpr uint32_t msl_unset<bfloat> = 0xfefe;
#endif

// Tells whether all of the numbers are uninitialised. A vector may have some such elements that the kernel never uses.
template <class T, int N>
MSL_INLINE bool msl_is_unset(const T (&numbers)[N]) {
#ifdef MSL_CHECKED
    if constexpr (msl_unset<T> != 0) {
        using Bits = conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
        Bits different = 0;
        for (int i = 0; i < N; i++) different |= __builtin_bit_cast(Bits, numbers[i]) ^ (Bits)msl_unset<T>;
        return !different;
    }
#endif
    return false;
}
}  // namespace metal
