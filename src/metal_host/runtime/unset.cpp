// What a variable holds that nobody has set, where it reaches an output: in a checked run the compiler fills variables
// with a pattern. A number that was made of one such variable, by adding to it, rounding or widening it, shows it
// still.
#include <string.h>

#include "memory.h"

namespace {
struct Patterns {  // of an element, as bits
    uint32_t bytes;
    uint32_t bits[4];  // up to a 0
};

// None that kernels may well compute: not what a float becomes as bfloat, half of the lowest number; nor clang's
// bfloat.
#ifdef __clang__
constexpr uintptr_t POINTER = 0xaaaaaaaaaaaaaaaa;
const Patterns PATTERNS[] = {
    {0, {}},           {4, {0xffffffff, 0xffffe000}},  // NaN; and the same of a half
    {2, {0xffff}},     {2, {0xffff}},
    {4, {0xaaaaaaaa}},
};
#else
constexpr uintptr_t POINTER = 0xfefefefefefefefe;
const Patterns PATTERNS[] = {
    {0, {}},
    {4, {0xfefefefe, 0xff7efefe, 0xfefe0000, 0xffdfc000}},  // also twice as much; a bfloat; and a half, which is NaN
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

// Whether somebody handed in the same bits, for a kernel to copy.
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

bool is_unset_pointer(uintptr_t address) {  // or an element behind it
    return address - POINTER + (1ull << 32) < 1ull << 33;
}

bool is_unset_index(int64_t index) {  // of 32 bits
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
