// Barriers, and the operations with which the lanes of a simdgroup read each other's values.
#pragma once
#include "packed.h"

namespace metal {
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }

MSL_OURS void threadgroup_barrier(mem_flags flags, MSL_WHERE) { msl_threadgroup_barrier((int)flags, where); }
MSL_OURS void simdgroup_barrier(mem_flags flags, MSL_WHERE) { msl_simdgroup_barrier((int)flags, where); }

template <class T>
class exchange {  // every active lane shows a value, and can then read the values of the others
   public:
    MSL_OURS exchange(const T& value, const char* operation, msl_where where) : operation_(operation), where_(where) {
        static_assert(sizeof(T) <= MSL_SLOT, "too large a value for an operation of a simdgroup");
        msl_exchange(&value, sizeof(T), operation, where, &view_);
    }
    MSL_OURS uint32_t lane() const { return view_.lane; }
    MSL_OURS uint32_t active() const { return view_.active; }
    MSL_OURS bool has(uint32_t i) const { return i < MSL_LANES && (view_.active >> i & 1); }
    MSL_OURS T at(uint32_t i) const {
        T value;
        __builtin_memcpy(&value, view_.slots + i * MSL_SLOT, sizeof value);
        return value;
    }
    MSL_OURS T of(uint32_t i) const {  // fails if lane i is inactive, because its value would be undefined
        if (!has(i)) msl_fail("inactive", operation_, where_);
        return at(i);
    }
    MSL_OURS void need_all() const {
        if (view_.active != ~0u) msl_fail("not_all", operation_, where_);
    }

   private:
    msl_view view_;
    const char* operation_;
    msl_where where_;
};

#define MSL_SHUFFLE(name, parameters, result)       \
    template <class T>                              \
    MSL_OURS T name parameters {                    \
        const exchange<T> all(value, #name, where); \
        const int lane = (int)all.lane();           \
        (void)lane;                                 \
        return result;                              \
    }
MSL_SHUFFLE(simd_shuffle, (T value, ushort from, MSL_WHERE), all.of(from))
MSL_SHUFFLE(simd_broadcast, (T value, ushort from, MSL_WHERE), all.of(from))
MSL_SHUFFLE(simd_broadcast_first, (T value, MSL_WHERE), all.at(__builtin_ctz(all.active())))
MSL_SHUFFLE(simd_shuffle_xor, (T value, ushort mask, MSL_WHERE), all.of((uint32_t)lane ^ mask))
MSL_SHUFFLE(simd_shuffle_up, (T value, ushort by, MSL_WHERE), lane < by ? value : all.of(lane - by))
MSL_SHUFFLE(simd_shuffle_down, (T value, ushort by, MSL_WHERE), lane + by > 31 ? value : all.of(lane + by))
MSL_SHUFFLE(simd_shuffle_rotate_up, (T value, ushort by, MSL_WHERE), all.of((lane - by) & 31))
MSL_SHUFFLE(simd_shuffle_rotate_down, (T value, ushort by, MSL_WHERE), all.of((lane + by) & 31))
MSL_SHUFFLE(quad_shuffle, (T value, ushort from, MSL_WHERE), all.of((lane & ~3) + (from & 3)))
MSL_SHUFFLE(quad_broadcast, (T value, ushort from, MSL_WHERE), all.of((lane & ~3) + (from & 3)))
MSL_SHUFFLE(quad_shuffle_xor, (T value, ushort mask, MSL_WHERE), all.of((uint32_t)lane ^ (mask & 3)))
MSL_SHUFFLE(quad_shuffle_up, (T value, ushort by, MSL_WHERE), lane % 4 < by ? value : all.of(lane - by))
MSL_SHUFFLE(quad_shuffle_down, (T value, ushort by, MSL_WHERE), lane % 4 + by > 3 ? value : all.of(lane + by))
#undef MSL_SHUFFLE

template <class T>
struct filled {
    T value, fill;
};
template <class T>
MSL_OURS T simd_shuffle_and_fill_up(T value, T fill, ushort by, MSL_WHERE) {
    const exchange<filled<T>> all({value, fill}, "simd_shuffle_and_fill_up", where);
    const int from = (int)all.lane() - by;
    return from < 0 ? all.of(32 + from).fill : all.of(from).value;
}
template <class T>
MSL_OURS T simd_shuffle_and_fill_down(T value, T fill, ushort by, MSL_WHERE) {
    const exchange<filled<T>> all({value, fill}, "simd_shuffle_and_fill_down", where);
    const int from = (int)all.lane() + by;
    return from > 31 ? all.of(from - 32).fill : all.of(from).value;
}
}  // namespace metal
