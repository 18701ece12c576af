// What a kernel, as compiled, and the runtime know of each other.
#pragma once
#include <stddef.h>
#include <stdint.h>

// A place in the kernel's text; as a default argument, that of the call.
struct msl_where {
    const char* file;
    int line;
    int call;  // tells several calls in one line apart
    static constexpr msl_where here(int call = 0, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line, call};
    }
};
#define MSL_WHERE msl_where where = msl_where::here()

constexpr uint32_t MSL_LANES = 32;
constexpr uint32_t MSL_REDZONE = 64;  // bytes on each side of a thread's own array
constexpr uint32_t MSL_SLOT = 64;     // bytes that a lane may show to the others of its simdgroup

// Numbers of which is known what a variable holds that nobody has set; words: integers of 4 or 8 bytes.
enum msl_number : uint32_t { MSL_OTHER, MSL_FLOAT, MSL_HALF, MSL_BFLOAT, MSL_WORDS };

struct msl_view {  // what the lanes that take part in one operation of a simdgroup showed, one slot a lane
    const unsigned char* slots;
    uint32_t active;
    uint32_t lane;
};

struct msl_site {  // of a threadgroup variable
    int region;    // 0: it has no memory yet
};

struct msl_thread {
    uint32_t position_in_grid[3], position_in_threadgroup[3], threadgroup_position[3];
    uint32_t threads_per_grid[3], threads_per_threadgroup[3], dispatch_threads[3], threadgroups[3];
    uint32_t index, lane, simdgroup, simdgroups, dispatch_simdgroups;
};

extern "C" {
void msl_threadgroup_barrier(int flags, msl_where where);
void msl_simdgroup_barrier(int flags, msl_where where);
void msl_exchange(const void* value, uint32_t size, const char* operation, msl_where where, msl_view* view);
void* msl_threadgroup_variable(msl_site* site, size_t bytes, size_t item, const char* name, msl_where where);
void* msl_watch(void* array, size_t bytes, size_t item, const char* name);  // until msl_unwatch, last one first
void msl_unwatch();
void msl_atomic(const volatile void* address, uint32_t size, bool reads, bool writes);
[[noreturn]] void msl_fail(const char* kind, const char* operation, msl_where where);
uint32_t msl_lane();
}
