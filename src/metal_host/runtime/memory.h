// What memory.cpp (where may a kernel read and write?) and races.cpp (who did so since the last barrier?) share.
#pragma once
#include "runtime.h"

struct Access {
    uint32_t epoch;       // of this kind of memory; 0: no access
    uint32_t simd_epoch;  // the same, counted by the barriers of the simdgroup
    uint32_t group;
    uint16_t thread;
    bool atomic;
    uint8_t mask;       // which bytes of the cell
    uint32_t barriers;  // of any kind that the threadgroup had passed
    uintptr_t code;
};

struct Accesses {  // enough of them to find a conflict with any earlier one since the last barrier
    Access last, other;
};

struct Cell {
    Accesses writes, reads;
};

struct Region {
    char* base;
    uint64_t bytes, origin;
    uint32_t item, kind, granule;  // granule: the bytes for which one cell stands
    Cell* cells;
    uint8_t* written;  // for each byte
    const char* gaps;  // for each byte of a view, whether it is no element's; nullptr: all are
    const char* name;  // of a threadgroup variable
};

const Region& region_at(uint32_t number);
uint32_t regions_used();
void say_access(const char* kind, uint32_t bytes, bool writes, bool atomic, uintptr_t code);
void say_region(const Region& region, uintptr_t address);
void check_race(Region& region, uint64_t at, uint32_t bytes, bool writes, bool atomic, uintptr_t code);
void begin_epoch();  // of a threadgroup
