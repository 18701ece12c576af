// Lanes that wait at the same call go on together. Each call in the source gets a number, because a line may have two
// calls: x ? simd_sum(a) : simd_sum(b)
#pragma once
#include "mlx.h"

#define MSL_CALL msl_where::here(__COUNTER__ + 1)
#define simd_sum(...) simd_sum(__VA_ARGS__, MSL_CALL)
#define simd_product(...) simd_product(__VA_ARGS__, MSL_CALL)
#define simd_max(...) simd_max(__VA_ARGS__, MSL_CALL)
#define simd_min(...) simd_min(__VA_ARGS__, MSL_CALL)
#define simd_broadcast(...) simd_broadcast(__VA_ARGS__, MSL_CALL)
#define simd_broadcast_first(...) simd_broadcast_first(__VA_ARGS__, MSL_CALL)
#define simd_shuffle(...) simd_shuffle(__VA_ARGS__, MSL_CALL)
#define simd_shuffle_xor(...) simd_shuffle_xor(__VA_ARGS__, MSL_CALL)
#define simd_shuffle_up(...) simd_shuffle_up(__VA_ARGS__, MSL_CALL)
#define simd_shuffle_down(...) simd_shuffle_down(__VA_ARGS__, MSL_CALL)
#define simd_ballot(...) simd_ballot(__VA_ARGS__, MSL_CALL)
#define simd_all(...) simd_all(__VA_ARGS__, MSL_CALL)
#define simd_any(...) simd_any(__VA_ARGS__, MSL_CALL)
#define threadgroup_barrier(...) threadgroup_barrier(__VA_ARGS__, MSL_CALL)
#define simdgroup_barrier(...) simdgroup_barrier(__VA_ARGS__, MSL_CALL)
