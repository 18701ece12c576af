// The memory that a kernel may use: one region for each buffer and threadgroup variable, far apart from each other. In
// a checked run, check_access sees every access.
#ifdef __APPLE__
#include <dlfcn.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "memory.h"

namespace {
constexpr uint32_t MOST_REGIONS = 128;
constexpr uint64_t MARGIN = 16 << 20;
Region regions[MOST_REGIONS];
uint32_t region_count, buffer_count;
uint64_t threadgroup_bytes;
uintptr_t arena;
int slot_bits;

Region& add_region(uint64_t bytes, uint32_t item, uint32_t kind) {
    if (region_count == MOST_REGIONS) out_of_memory();
    Region& region = regions[region_count];
    char* base = reinterpret_cast<char*>(arena + ((uint64_t)region_count++ << slot_bits) + MARGIN);
    region = {base, bytes, 0, item, kind, item < 4 ? item : 4, nullptr, nullptr, nullptr, ""};
    if (bytes && mprotect(base, (bytes + 65535) & ~65535ull, PROT_READ | PROT_WRITE)) out_of_memory();
    if (request.checked && kind != INPUT) {
        region.cells = static_cast<Cell*>(calloc(bytes / region.granule + 1, sizeof(Cell)));
        region.written = static_cast<uint8_t*>(calloc(bytes + 1, 1));
        if (!region.cells || !region.written) out_of_memory();
    }
    return region;
}

void reserve(const Buffer* buffers) {
    uint64_t largest = request.threadgroup_bytes * 64ull;
    for (uint32_t i = 0; i < request.buffers; i++)
        if (buffers[i].bytes > largest) largest = buffers[i].bytes;
    for (slot_bits = 26; (1ull << slot_bits) < largest + 2 * MARGIN;) slot_bits++;
    void* memory =
        mmap(nullptr, (uint64_t)MOST_REGIONS << slot_bits, PROT_NONE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) out_of_memory();
    arena = reinterpret_cast<uintptr_t>(memory);
}

int64_t element(const Region& region, uintptr_t address) {
    const int64_t byte = (int64_t)(address - reinterpret_cast<uintptr_t>(region.base) - region.origin);
    return byte >= 0 ? byte / region.item : -((-byte + region.item - 1) / region.item);
}

// Finds the region for an index that wrapped around or is uninitialised. An unsigned index of -1 is 2^32 - 1, so its
// address is billions of elements past the region, and an uninitialised index can lead anywhere.
const Region* wrapped_region(uintptr_t address, int64_t& index) {
    for (uint32_t i = 0; i < region_count; i++) {
        index = element(regions[i], address);
        if ((index < 1ll << 32 && index >= (1ll << 32) - 65536) || is_unset_index(index)) return &regions[i];
    }
    return nullptr;
}

#ifdef __APPLE__
bool in_program(uintptr_t address) {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(address), &info) != 0;
}
#else
extern "C" char __executable_start, _end;
bool in_program(uintptr_t address) {  // the kernel's own constants
    return address - reinterpret_cast<uintptr_t>(&__executable_start) < (uintptr_t)(&_end - &__executable_start);
}
#endif

[[noreturn]] void fail_wild(uintptr_t address, uint32_t bytes, bool writes, bool atomic, uintptr_t code) {
    int64_t index = 0;
    const Region* region = wrapped_region(address, index);
    const char* where = is_null(address) ? "null" : is_unset_pointer(address) ? "unset_pointer" : "wild";
    say_access(region ? "bounds" : where, bytes, writes, atomic, code);
    if (region) {
        say_region(*region, address);
        say("index", "%ld", (long)index);
    }
    end_with_report(1);
}

// Checks an access to a thread's own memory: all of it may be used, except the redzones around the thread's arrays.
void check_own(uintptr_t address, uint32_t bytes, bool writes, uintptr_t code) {
    for (const Watched& array : watched_now()) {
        const int64_t at = (int64_t)(address - array.start), end = at + bytes, all = array.bytes, redzone = MSL_REDZONE;
        if ((at >= 0 && end <= all) || end <= -redzone || at >= all + redzone) continue;
        say_access("bounds", bytes, writes, false, code);
        say("private", "%s", array.name);
        say("count", "%u", array.bytes / array.item);
        const int64_t first = at < 0 || at > all ? at : all, item = array.item;  // outside
        say("index", "%ld", (long)(first >= 0 ? first / item : -((item - 1 - first) / item)));
        end_with_report(1);
    }
}
}  // namespace

void out_of_memory() {
    say("kind", "memory");
    end_with_report(1);
}

const Region& region_at(uint32_t number) { return regions[number]; }
uint32_t regions_used() { return region_count; }

void say_region(const Region& region, uintptr_t address) {
    if (region.kind == THREADGROUP)
        say("variable", "%s", region.name);
    else
        say("buffer", "%u", (uint32_t)(&region - regions));
    say("count", "%lu", (unsigned long)(region.bytes / region.item));
    say("index", "%ld", (long)element(region, address));
    say("byte", "%lu", (unsigned long)(address - reinterpret_cast<uintptr_t>(region.base)));
}

void say_access(const char* kind, uint32_t bytes, bool writes, bool atomic, uintptr_t code) {
    say("kind", "%s", kind);
    say("access", "%s%s", atomic ? "atomic " : "", writes ? "write" : "read");
    say("bytes", "%u", bytes);
    say_calls("code", code);
    say_current_thread();
}

void check_access(uintptr_t address, uint32_t bytes, bool writes, bool atomic, bool aligned, uintptr_t code) {
    if (threads.current < 0) return;
    if (address - threads.stack < STACK) return check_own(address, bytes, writes, code);
    const uint64_t slot = (address - arena) >> slot_bits;
    if (slot >= region_count) {
        if (in_program(address)) return;
        fail_wild(address, bytes, writes, atomic, code);
    }
    Region& region = regions[slot];
    const uint64_t at = address - reinterpret_cast<uintptr_t>(region.base);
    const char* problem = nullptr;
    int64_t index;
    if (at >= region.bytes && wrapped_region(address, index)) fail_wild(address, bytes, writes, atomic, code);
    if (at >= region.bytes || at + bytes > region.bytes)
        problem = "bounds";
    else if (region.gaps && memchr(region.gaps + at, 1, bytes))
        problem = "gap";
    else if (aligned && at & (bytes - 1))
        problem = "alignment";
    else if (writes && region.kind == INPUT)
        problem = "input";
    else if (!writes && region.written && memchr(region.written + at, 0, bytes))
        problem = "unwritten";
    if (problem) {
        say_access(problem, bytes, writes, atomic, code);
        const bool ends_past = *problem == 'b' && at < region.bytes;  // report the first element past the end
        say_region(region, ends_past ? reinterpret_cast<uintptr_t>(region.base) + region.bytes : address);
        if (strcmp(problem, "unwritten") != 0) end_with_report(1);
        defer_report();  // if a thread writes the element before the next barrier, the error is a race
    }
    if (request.observe) observe_access((uint32_t)slot, at, bytes, writes, atomic, code);
    if (region.kind == INPUT) return;
    check_race(region, at, bytes, writes, atomic, code);
    if (writes) memset(region.written + at, 1, bytes);
}

void prepare_memory(const Buffer* buffers, char* file, void** pointers) {
    reserve(buffers);
    for (uint32_t i = 0; i < request.buffers; i++) {
        const Buffer& buffer = buffers[i];
        Region& region = add_region(buffer.bytes, buffer.item, buffer.kind);
        region.origin = buffer.origin;
        region.gaps = buffer.gaps ? file + buffer.gaps : nullptr;
        pointers[i] = region.base + buffer.origin;
        if (buffer.kind == OUTPUT)
            memset(region.base, 0xff, buffer.bytes);  // NaN, or -1
        else
            memcpy(region.base, file + buffer.offset, buffer.bytes);
        if (buffer.kind == FILLED_OUTPUT && region.written) memset(region.written, 1, buffer.bytes);
    }
    buffer_count = region_count;
}

void begin_threadgroup() {
    begin_epoch();
    for (uint32_t i = buffer_count; i < region_count; i++) {
        memset(regions[i].base, 0xff, regions[i].bytes);
        if (regions[i].written) memset(regions[i].written, 0, regions[i].bytes);
    }
}

void* msl_threadgroup_variable(msl_site* site, size_t bytes, size_t item, const char* name, msl_where where) {
    if (!site->region) {
        threadgroup_bytes += (bytes + 15) & ~size_t{15};
        if (threadgroup_bytes > request.threadgroup_bytes) {
            say("kind", "threadgroup_memory");
            say("bytes", "%lu", (unsigned long)threadgroup_bytes);
            say("limit", "%u", request.threadgroup_bytes);
            say("variable", "%s", name);
            say_where("", where);
            end_with_report(1);
        }
        Region& region = add_region(bytes, (uint32_t)item, THREADGROUP);
        region.name = name;
        memset(region.base, 0xff, bytes);
        site->region = (int)region_count;
    }
    return regions[site->region - 1].base;
}

void take_outputs_back(char* file, const Buffer* buffers) {
    for (uint32_t i = 0; i < buffer_count; i++) {
        const Region& region = regions[i];
        if (region.kind == INPUT) continue;
        memcpy(file + buffers[i].offset, region.base, region.bytes);
        if (region.kind != OUTPUT || !request.checked) continue;
        uint64_t missing = 0, first = 0;
        for (uint64_t k = region.bytes; k; k -= region.item)
            if (!region.written[k - 1]) missing++, first = k / region.item - 1;
        if (!missing) continue;
        say("kind", "output");
        say("buffer", "%u", i);
        say("missing", "%lu", (unsigned long)missing);
        say("count", "%lu", (unsigned long)(region.bytes / region.item));
        say("index", "%lu", (unsigned long)first);
        end_with_report(1);
    }
}
