// Types that memory.cpp and races.cpp share. memory.cpp knows where a kernel may read and write, and races.cpp which
// thread did so since the last barrier.
#pragma once
#include "runtime.h"

struct Access {
    uint32_t epoch;       // counts the threadgroup's barriers for this kind of memory; 0: no access
    uint32_t simd_epoch;  // counts the simdgroup's barriers for this kind of memory
    uint32_t group;
    uint16_t thread;
    bool atomic;
    uint8_t mask;       // a bit for each byte of the cell
    uint32_t barriers;  // how many barriers with any flags the threadgroup had passed
    uintptr_t code;
};

struct Accesses {  // two accesses are enough to find a conflict with any access since the last barrier
    Access last, other;
};

struct Cell {
    Accesses writes, reads;
};

struct Region {
    char* base;
    uint64_t bytes, origin;
    uint32_t item, kind, granule;  // granule: how many bytes one cell covers
    Cell* cells;
    uint8_t* written;  // a flag for each byte
    const char* gaps;  // a flag for each byte of a view that is between elements; nullptr: there are no gaps
    const char* name;  // the name of a threadgroup variable
};

const Region& region_at(uint32_t number);
uint32_t regions_used();
void say_access(const char* kind, uint32_t bytes, bool writes, bool atomic, uintptr_t code);
void say_region(const Region& region, uintptr_t address);
void check_race(Region& region, uint64_t at, uint32_t bytes, bool writes, bool atomic, uintptr_t code);
void begin_epoch();  // when a threadgroup begins
