// The interface between a compiled kernel and the runtime.
#pragma once
#include <stddef.h>
#include <stdint.h>

// A place in the kernel's text. As a default argument, it is the place of the call.
struct msl_where {
    const char* file;
    int line;
    int call;  // distinguishes calls in the same line
    static constexpr msl_where here(int call = 0, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line, call};
    }
};
#define MSL_WHERE msl_where where = msl_where::here()

constexpr uint32_t MSL_LANES = 32;
constexpr uint32_t MSL_REDZONE = 64;  // bytes on each side of a thread's own array
constexpr uint32_t MSL_SLOT = 64;     // bytes that a lane can show to the other lanes of its simdgroup

// Types whose uninitialised variables hold a known pattern. Words are integers of 4 or 8 bytes.
enum msl_number : uint32_t { MSL_OTHER, MSL_FLOAT, MSL_HALF, MSL_BFLOAT, MSL_WORDS };

struct msl_view {  // the values that the active lanes show in one operation of a simdgroup, one slot per lane
    const unsigned char* slots;
    uint32_t active;
    uint32_t lane;
};

struct msl_site {  // the declaration of a threadgroup variable
    int region;    // the number of its region, plus 1; 0: it has no memory yet
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
void* msl_watch(void* array, size_t bytes, size_t item, const char* name);  // msl_unwatch ends the newest
void msl_unwatch();
void msl_atomic(const volatile void* address, uint32_t size, bool reads, bool writes);
[[noreturn]] void msl_fail(const char* kind, const char* operation, msl_where where);
uint32_t msl_lane();
}
