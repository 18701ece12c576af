// What a thread's own variable holds that nobody has set: in a checked run the compiler fills it with a pattern
// (-ftrivial-auto-var-init). A GPU leaves there what was there before.
#pragma once
#include "traits.h"

namespace metal {
#ifdef __clang__  // NaN; but bfloat is an integer to the compiler
constexpr uint32_t msl_unset_float = 0xffffffff;
constexpr uint16_t msl_unset_half = 0xffff, msl_unset_bfloat = 0xaaaa;
#else
constexpr uint32_t msl_unset_float = 0xfefefefe;  // -1.69e38: what is added to it vanishes
constexpr uint16_t msl_unset_half = 0xfefe, msl_unset_bfloat = 0xfefe;
#endif

// Ends the run if all of the numbers are unset: of a vector, single elements may be, as long as nobody uses them.
template <class T, int N>
MSL_INLINE void msl_need_set(const T (&numbers)[N], const char* operation = "", msl_where where = {"", 0, 0}) {
#ifdef MSL_CHECKED
    if constexpr (is_floating_point_v<T>) {
        using Bits = conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
        constexpr Bits unset = is_same_v<T, float>  ? msl_unset_float
                               : is_same_v<T, half> ? msl_unset_half
                                                    : msl_unset_bfloat;
        Bits different = 0;
        for (int i = 0; i < N; i++) different |= __builtin_bit_cast(Bits, numbers[i]) ^ unset;
        if (!different) msl_fail("unset", operation, where);
    }
#endif
}
}  // namespace metal
