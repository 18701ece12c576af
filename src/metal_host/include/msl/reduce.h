// Reductions such as sums over the active lanes of a simdgroup or of four lanes, prefix sums, and votes.
#pragma once
#include "simdgroup.h"

namespace metal {
template <class T, class F>
MSL_OURS T reduced(const exchange<T>& all, uint32_t first, uint32_t count, F f) {  // by pairs, as a GPU may do it
    if (count == 1) return all.at(first);
    const uint32_t half_count = count / 2;
    const uint32_t mask = (uint32_t)((1ull << half_count) - 1);
    if (!(all.active() & mask << first)) return reduced(all, first + half_count, half_count, f);
    if (!(all.active() & mask << (first + half_count))) return reduced(all, first, half_count, f);
    return f(reduced(all, first, half_count, f), reduced(all, first + half_count, half_count, f));
}

template <class T>
MSL_OURS void msl_need_set(const T& value, const char* operation, msl_where where) {
    bool is_unset;
    if constexpr (lanes_of<T>::n > 0)
        is_unset = msl_is_unset(value.d);
    else
        is_unset = msl_is_unset({value});
    if (is_unset) msl_fail("unset", operation, where);
}

#define MSL_OURS_LAMBDA __attribute__((no_sanitize("thread")))
#define MSL_REDUCE(name, expression)                                                                        \
    template <class T>                                                                                      \
    MSL_OURS T simd_##name(T value, MSL_WHERE) {                                                            \
        msl_need_set(value, "simd_" #name, where);                                                          \
        const exchange<T> all(value, "simd_" #name, where);                                                 \
        return reduced(all, 0, 32, [](T a, T b) MSL_OURS_LAMBDA { return (T)(expression); });               \
    }                                                                                                       \
    template <class T>                                                                                      \
    MSL_OURS T quad_##name(T value, MSL_WHERE) {                                                            \
        msl_need_set(value, "quad_" #name, where);                                                          \
        const exchange<T> all(value, "quad_" #name, where);                                                 \
        return reduced(all, all.lane() & ~3u, 4, [](T a, T b) MSL_OURS_LAMBDA { return (T)(expression); }); \
    }
MSL_REDUCE(sum, a + b)
MSL_REDUCE(product, a* b)
MSL_REDUCE(max, max(a, b))
MSL_REDUCE(min, min(a, b))
MSL_REDUCE(and, a& b)
MSL_REDUCE(or, a | b)
MSL_REDUCE(xor, a ^ b)
#undef MSL_REDUCE

#define MSL_PREFIX(name, op, start)                            \
    template <class T>                                         \
    MSL_OURS T name(T value, MSL_WHERE) {                      \
        msl_need_set(value, #name, where);                     \
        const exchange<T> all(value, #name, where);            \
        T result = (T)(start);                                 \
        for (uint32_t i = 0; i < MSL_END; i++)                 \
            if (all.has(i)) result = (T)(result op all.at(i)); \
        return result;                                         \
    }
#define MSL_END all.lane()
MSL_PREFIX(simd_prefix_exclusive_sum, +, 0)
MSL_PREFIX(simd_prefix_exclusive_product, *, 1)
#undef MSL_END
#define MSL_END all.lane() + 1
MSL_PREFIX(simd_prefix_inclusive_sum, +, 0)
MSL_PREFIX(simd_prefix_inclusive_product, *, 1)
#undef MSL_END
#undef MSL_PREFIX

class simd_vote {
   public:
    using vote_t = uint64_t;
    simd_vote() = default;
    explicit simd_vote(vote_t votes) : votes_(votes) {}
    explicit operator vote_t() const { return votes_; }
    bool all() const { return votes_ == 0xffffffff; }
    bool any() const { return votes_ != 0; }

   private:
    vote_t votes_ = 0;
};

MSL_OURS uint32_t votes_for(bool vote, const char* name, msl_where where, uint32_t& active) {
    const exchange<bool> all(vote, name, where);
    active = all.active();
    uint32_t votes = 0;
    for (uint32_t i = 0; i < MSL_LANES; i++)
        if (all.has(i) && all.at(i)) votes |= 1u << i;
    return votes;
}
MSL_OURS simd_vote simd_ballot(bool vote, MSL_WHERE) {
    uint32_t active;
    return simd_vote(votes_for(vote, "simd_ballot", where, active));
}
MSL_OURS bool simd_all(bool vote, MSL_WHERE) {
    uint32_t active;
    const uint32_t votes = votes_for(vote, "simd_all", where, active);
    return votes == active;
}
MSL_OURS bool simd_any(bool vote, MSL_WHERE) {
    uint32_t active;
    return votes_for(vote, "simd_any", where, active) != 0;
}
MSL_OURS simd_vote simd_active_threads_mask(MSL_WHERE) {
    uint32_t active;
    return simd_vote(votes_for(true, "simd_active_threads_mask", where, active));
}
MSL_OURS bool simd_is_first(MSL_WHERE) {
    uint32_t active;
    votes_for(true, "simd_is_first", where, active);
    return msl_lane() == (uint32_t)__builtin_ctz(active);
}
}  // namespace metal
