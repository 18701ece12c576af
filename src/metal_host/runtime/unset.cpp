// Detection of uninitialised variables whose values reach an output. In a checked run, the compiler fills variables
// with a pattern. The pattern survives if a kernel adds to such a variable, rounds it or widens it.
#include <string.h>

#include "memory.h"

namespace {
struct Patterns {
    uint32_t bytes;    // how many bytes a pattern has
    uint32_t bits[4];  // the patterns; 0 ends the list
};

// A pattern that a correct kernel is likely to compute is left out: the float rounded to bfloat, which is half of the
// lowest number, and clang's pattern of a bfloat.
#ifdef __clang__
constexpr uintptr_t POINTER = 0xaaaaaaaaaaaaaaaa;
const Patterns PATTERNS[] = {
    {0, {}},           {4, {0xffffffff, 0xffffe000}},  // NaN, and the NaN of a half as a float
    {2, {0xffff}},     {2, {0xffff}},
    {4, {0xaaaaaaaa}},
};
#else
constexpr uintptr_t POINTER = 0xfefefefefefefefe;
const Patterns PATTERNS[] = {
    {0, {}},
    {4, {0xfefefefe, 0xff7efefe, 0xfefe0000, 0xffdfc000}},  // the pattern, its double, a bfloat, a half (NaN)
    {2, {0xfefe}},
    {2, {0xfefe}},
    {4, {0xfefefefe}},
};
#endif

bool is_pattern(const Patterns& patterns, const char* at, uint32_t item) {
    for (uint32_t bits : patterns.bits) {
        bool all = bits;
        for (uint32_t k = 0; k < item; k += patterns.bytes) all = all && !memcmp(at + k, &bits, patterns.bytes);
        if (all) return true;
    }
    return false;
}

// Tells whether an input has an element with the same bits, which the kernel may have copied.
bool is_given(const Buffer* buffers, const char* element, uint32_t item) {
    for (uint32_t i = 0; i < request.buffers; i++) {
        const Region& region = region_at(i);
        if (buffers[i].kind != INPUT || region.item != item) continue;
        for (uint64_t k = 0; k + item <= region.bytes; k += item)
            if (!memcmp(region.base + k, element, item)) return true;
    }
    return false;
}
}  // namespace

bool is_unset_pointer(uintptr_t address) {  // the pattern, or an address near it
    return address - POINTER + (1ull << 32) < 1ull << 33;
}

bool is_unset_index(int64_t index) {  // the pattern of a 32-bit index, or a little more
    return (index >> 32 == 0 || index >> 32 == -1) && (uint32_t)index - (uint32_t)POINTER < 65536;
}

void check_outputs_are_set(const Buffer* buffers) {
    for (uint32_t i = 0; i < request.buffers && request.checked; i++) {
        const Region& region = region_at(i);
        const Patterns& patterns = PATTERNS[buffers[i].number];
        if (region.kind == INPUT || !patterns.bytes) continue;
        for (uint64_t k = 0; k + region.item <= region.bytes; k += region.item) {
            const Access& stored = region.cells[k / region.granule].writes.last;
            const char* element = region.base + k;
            if (!stored.code || !is_pattern(patterns, element, region.item)) continue;
            if (is_given(buffers, element, region.item)) break;
            say("kind", "unset");
            say_place("code", stored.code);
            say_thread("", stored.group, stored.thread);
            say_region(region, reinterpret_cast<uintptr_t>(element));
            end_with_report(1);
        }
    }
}
