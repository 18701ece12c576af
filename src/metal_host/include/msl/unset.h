// What a thread's own variable holds that nobody has set: in a checked run the compiler fills it with a pattern
// (-ftrivial-auto-var-init). A GPU leaves there what was there before.
#pragma once
#include "traits.h"

namespace metal {
template <class T>
constexpr uint32_t msl_unset = 0;  // it is not known
#ifdef __clang__                   // NaN
template <>
constexpr uint32_t msl_unset<float> = 0xffffffff;
template <>
constexpr uint32_t msl_unset<half> = 0xffff;
#else
template <>
constexpr uint32_t msl_unset<float> = 0xfefefefe;  // -1.69e38: what is added to it vanishes
template <>
constexpr uint32_t msl_unset<half> = 0xfefe;
template <>
constexpr uint32_t msl_unset<bfloat> = 0xfefe;
#endif

// Whether all of the numbers are unset: of a vector, single elements may be, as long as nobody uses them.
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
