// Detection of races. Two accesses of different threads to the same bytes race if at least one of them writes, they are
// not both atomic, and no barrier is between them.
#include "memory.h"

namespace {
struct Epochs {  // how many barriers have ordered the accesses to device and to threadgroup memory
    uint32_t device, threadgroup;
};
Epochs now = {1, 1};
List<Epochs> simd_now;
uint32_t barriers_passed;
struct {
    int flags;
    msl_where where;
} last_barrier;

bool same_simdgroup(const Access& a, const Access& b) {
    return a.group == b.group && a.thread / MSL_LANES == b.thread / MSL_LANES;
}

// Tells whether an earlier access is unordered with this access, if different threads made the two. Threadgroups are
// never ordered, but each threadgroup has its own threadgroup memory.
bool still_counts(const Access& earlier, const Access& mine, const Region& region) {
    if (earlier.epoch == 0) return false;
    if (earlier.group != mine.group) return region.kind != THREADGROUP;
    if (earlier.epoch != mine.epoch) return false;
    return !same_simdgroup(earlier, mine) || earlier.simd_epoch == mine.simd_epoch;
}

bool conflicts(const Access& earlier, const Access& mine, const Region& region) {
    if (earlier.group == mine.group && earlier.thread == mine.thread) return false;
    if ((earlier.atomic && mine.atomic) || !(earlier.mask & mine.mask)) return false;
    return still_counts(earlier, mine, region);
}

// Keeps the newest access, and one by another thread. A thread of another simdgroup is preferred, because a barrier of
// this simdgroup does not order its accesses.
void remember(Accesses& all, const Access& mine, const Region& region) {
    const Access& last = all.last;
    const bool is_other = last.group != mine.group || last.thread != mine.thread;
    if (is_other && still_counts(last, mine, region)) {
        const bool keeps_far = still_counts(all.other, mine, region) && !same_simdgroup(all.other, mine);
        if (!keeps_far || !same_simdgroup(last, mine)) all.other = last;
    }
    all.last = mine;
}

[[noreturn]] void fail(const Region& region, const Access& mine, const Access& other, bool other_writes,
                       uintptr_t address) {
    drop_deferred_report();
    say("other_access", "%s%s", other.atomic ? "atomic " : "", other_writes ? "write" : "read");
    say_place("other_code", other.code);
    say_thread("other_", other.group, other.thread);
    say("groups", "%d", other.group == mine.group ? 1 : 2);
    if (other.group == mine.group && other.barriers != barriers_passed) {
        say("barrier_flags", "%d", last_barrier.flags);
        say_where("barrier_", last_barrier.where);
    }
    say_region(region, address);
    end_with_report(1);
}

void check_cell(Cell& cell, const Access& mine, bool writes, const Region& region, uintptr_t address, uint32_t bytes) {
    const Access* found = nullptr;
    bool found_writes = true;
    for (const Access* earlier : {&cell.writes.last, &cell.writes.other})
        if (!found && conflicts(*earlier, mine, region)) found = earlier;
    if (writes && !found) {
        found_writes = false;
        for (const Access* earlier : {&cell.reads.last, &cell.reads.other})
            if (!found && conflicts(*earlier, mine, region)) found = earlier;
    }
    if (found) {
        say_access("race", bytes, writes, mine.atomic, mine.code);
        fail(region, mine, *found, found_writes, address);
    }
    remember(writes ? cell.writes : cell.reads, mine, region);
}
}  // namespace

void check_race(Region& region, uint64_t at, uint32_t bytes, bool writes, bool atomic, uintptr_t code) {
    const uint32_t me = (uint32_t)threads.current;
    const bool local = region.kind == THREADGROUP;
    const Epochs& simd = simd_now[me / MSL_LANES];
    Access mine = {local ? now.threadgroup : now.device,
                   local ? simd.threadgroup : simd.device,
                   threads.group,
                   (uint16_t)me,
                   atomic,
                   0,
                   barriers_passed,
                   code};
    for (uint64_t cell = at / region.granule; cell <= (at + bytes - 1) / region.granule; cell++) {
        const uint64_t start = cell * region.granule, end = start + region.granule;
        const uint64_t from = at > start ? at : start, to = at + bytes < end ? at + bytes : end;
        mine.mask = (uint8_t)(((1u << (to - from)) - 1) << (from - start));
        check_cell(region.cells[cell], mine, writes, region, (uintptr_t)region.base + from, bytes);
    }
}

void begin_epoch() {
    now.device++;
    now.threadgroup++;
    barriers_passed++;
    simd_now.resize((threads.count + MSL_LANES - 1) / MSL_LANES);
    for (Epochs& epochs : simd_now) epochs = {1, 1};
}

void order_threadgroup(int flags, msl_where where) {
    if (flags & 1) now.device++;
    if (flags & 2) now.threadgroup++;
    barriers_passed++;
    last_barrier = {flags, where};
}

void order_simdgroup(uint32_t simdgroup, int flags) {
    if (flags & 1) simd_now[simdgroup].device++;
    if (flags & 2) simd_now[simdgroup].threadgroup++;
}
