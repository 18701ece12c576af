// Keywords of Metal that have no meaning on a CPU, scalar types, and helpers for the other headers.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#include "runtime_interface.h"

#if !defined(__clang__) && (!defined(__FLT16_MAX__) || (defined(__aarch64__) && __GNUC__ < 13))
#error "kernels need a compiler that has _Float16: g++ 12 or later (on arm64 13), or clang 16 or later"
#endif

#define device
#define constant  // rewrite.py replaces it by const where that matters
#define thread
#define threadgroup
#define kernel
#define METAL_FUNC inline __attribute__((always_inline))
#define __METAL__ 1
#ifndef __METAL_VERSION__
#define __METAL_VERSION__ 310
#endif

// Loads and stores in MSL_INLINE functions are checked like the kernel's own; those in MSL_OURS functions are not.
#define MSL_INLINE inline __attribute__((always_inline))
#define MSL_OURS inline __attribute__((no_sanitize("thread")))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;

// threadgroup float x[32];   becomes   MSL_THREADGROUP(x, float[32])
#define MSL_THREADGROUP(name, ...)                                         \
    static msl_site msl_site_of_##name;                                    \
    auto& name = *static_cast<std::add_pointer_t<__VA_ARGS__>>(            \
        msl_threadgroup_variable(&msl_site_of_##name, sizeof(__VA_ARGS__), \
                                 sizeof(std::remove_all_extents_t<__VA_ARGS__>), #name, msl_where::here()));

// A thread's own array, used through pointers: float x[4];   becomes   msl_redzoned<float[4]> ...; auto& x = ...;
#ifdef MSL_CHECKED
template <class T>
struct msl_redzoned {
    char before[MSL_REDZONE];
    T value;
    char after[MSL_REDZONE];
};
template <class T>
struct msl_watched {  // while it exists, an access to a redzone is an error
    T* array;         // the result of an opaque function, so that the compiler instruments every access
    msl_watched(msl_redzoned<T>& in, const char* name)
        : array(static_cast<T*>(msl_watch(&in.value, sizeof(T), sizeof(std::remove_all_extents_t<T>), name))) {}
    ~msl_watched() { msl_unwatch(); }
};
#else
struct msl_no_redzone {};
template <class T>
struct msl_redzoned {
    msl_no_redzone before;
    T value;
    msl_no_redzone after;
};
template <class T>
struct msl_watched {
    T* array;
    msl_watched(msl_redzoned<T>& in, const char*) : array(&in.value) {}
};
#endif
