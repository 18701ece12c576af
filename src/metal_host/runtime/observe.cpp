// Observation of a checked run: counts of the memory that a kernel moves and in which pieces, or the events of one
// threadgroup. The output is lines that begin with "=", which observe.py reads.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "memory.h"

namespace {
enum Observe : uint32_t { NOTHING, COUNT, TRACE };
constexpr uint32_t LINE = 64, BANKS = 32, BANK = 4, MOST_EVENTS = 100000;

struct Traffic {
    uint64_t read, written, reads, writes, wide;  // bytes, and accesses of single threads
    uint64_t together, lines, cycles, least;      // accesses of simdgroups, and what they cost
    List<bool> was_read, was_written;             // a flag for each byte
};
struct Turn {  // an access of a lane; the lanes' n-th accesses at one place in the code happen together
    uintptr_t code;
    uint32_t turn, region;
    uint64_t at;
    uint32_t bytes;
};
struct Visits {  // how often a thread has reached a place in the code
    uintptr_t code;
    uint32_t count;
};
List<Traffic> traffic;
List<List<Turn>> turns;     // for each simdgroup, since the last barrier
List<List<Visits>> visits;  // for each thread
uint64_t barriers, simd_barriers, simd_operations, threadgroups;
uint32_t events;
char output[1 << 16];
size_t output_size;

void flush() {
    for (size_t done = 0; done < output_size;) {
        const ssize_t n = write(1, output + done, output_size - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
    output_size = 0;
}

void tell(const char* format, ...) __attribute__((format(printf, 1, 2)));
void tell(const char* format, ...) {
    constexpr size_t LONGEST = 1024;
    if (output_size + LONGEST > sizeof output) flush();
    va_list values;
    va_start(values, format);
    const size_t size = (size_t)vsnprintf(output + output_size, LONGEST, format, values);
    va_end(values);
    output_size += size < LONGEST ? size : LONGEST - 1;
}

bool is_traced() {
    if (request.observe != TRACE || threads.group != request.traced || threads.current < 0) return false;
    if (events == MOST_EVENTS) tell("= more\n");
    return events++ < MOST_EVENTS;
}

int compare(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

uint64_t different(List<uint64_t>& values) {  // sorts the distinct values to the front, and counts them
    qsort(values.data(), values.size(), sizeof values[0],
          [](const void* a, const void* b) { return compare(*(const uint64_t*)a, *(const uint64_t*)b); });
    size_t count = 0;
    for (size_t i = 0; i < values.size(); i++)
        if (i == 0 || values[i] != values[i - 1]) values[count++] = values[i];
    return count;
}

int compare_turns(const void* a, const void* b) {
    const auto &x = *(const Turn*)a, &y = *(const Turn*)b;
    if (x.code != y.code) return compare(x.code, y.code);
    return x.turn != y.turn ? compare(x.turn, y.turn) : compare(x.region, y.region);
}

uint32_t next_turn(uint32_t thread, uintptr_t code) {
    if (visits.size() <= thread) visits.resize(thread + 1);
    for (Visits& one : visits[thread])
        if (one.code == code) return one.count++;
    visits[thread].push({code, 1});
    return 0;
}

uint64_t marked(const List<bool>& bytes) {
    uint64_t count = 0;
    for (bool byte : bytes) count += byte;
    return count;
}

// Threadgroup memory delivers one word of each bank per cycle.
void count_cycles(const Turn* first, const Turn* last, Traffic& sum) {
    List<uint64_t> words;
    for (const Turn* t = first; t < last; t++)
        for (uint64_t word = t->at / BANK; word <= (t->at + t->bytes - 1) / BANK; word++) words.push(word);
    words.resize(different(words));
    uint64_t of_bank[BANKS] = {}, most = 0;
    for (uint64_t word : words)
        if (++of_bank[word % BANKS] > most) most = of_bank[word % BANKS];
    sum.cycles += most;
    sum.least += (words.size() + BANKS - 1) / BANKS;
}

void count_lines(const Turn* first, const Turn* last, Traffic& sum) {
    List<uint64_t> lines;
    for (const Turn* t = first; t < last; t++)
        for (uint64_t line = t->at / LINE; line <= (t->at + t->bytes - 1) / LINE; line++) lines.push(line);
    sum.lines += different(lines);
}

void settle_turns() {
    for (auto& all : turns) {
        qsort(all.data(), all.size(), sizeof(Turn), compare_turns);
        for (size_t i = 0, k = 0; i < all.size(); i = k) {
            while (k < all.size() && all[k].code == all[i].code && all[k].turn == all[i].turn &&
                   all[k].region == all[i].region)
                k++;
            Traffic& sum = traffic[all[i].region];
            sum.together++;
            (region_at(all[i].region).kind == THREADGROUP ? count_cycles : count_lines)(&all[i], &all[i] + (k - i),
                                                                                        sum);
        }
        all.clear();
    }
}
}  // namespace

void observe_access(uint32_t region, uint64_t at, uint32_t bytes, bool writes, bool atomic, uintptr_t code) {
    if (request.observe == TRACE && is_traced())
        tell("= access %d %s%s %u %lu %u %lx\n", threads.current, atomic ? "a" : "", writes ? "w" : "r", region,
             (unsigned long)at, bytes, (unsigned long)place_of(code));
    if (request.observe != COUNT) return;
    if (traffic.size() <= region) traffic.resize(region + 1);
    Traffic& sum = traffic[region];
    auto& touched = writes ? sum.was_written : sum.was_read;
    touched.resize(region_at(region).bytes);
    for (uint32_t i = 0; i < bytes; i++) touched[at + i] = true;
    (writes ? sum.written : sum.read) += bytes;
    (writes ? sum.writes : sum.reads)++;
    sum.wide += bytes >= 16;
    const uint32_t me = (uint32_t)threads.current;
    if (turns.size() <= me / MSL_LANES) turns.resize(me / MSL_LANES + 1);
    turns[me / MSL_LANES].push({code, next_turn(me, code), region, at, bytes});
}

void observe_wait(const char* operation, bool is_threadgroup, bool is_barrier, msl_where where) {
    if (request.observe == TRACE && is_traced())
        tell("= wait %d %s %d %s\n", threads.current, operation, where.line, where.file);
    if (request.observe == COUNT && !is_threadgroup) (is_barrier ? simd_barriers : simd_operations)++;
}

void observe_barrier() {
    if (request.observe != COUNT) return;
    barriers++;
    settle_turns();
}

void observe_end_of_threadgroup() {
    if (request.observe != COUNT) return;
    threadgroups++;
    settle_turns();
    for (auto& of_thread : visits) of_thread.clear();
}

void tell_observed() {
    if (request.observe == COUNT)
        tell("= run %lu %lu %lu %lu\n", (unsigned long)threadgroups, (unsigned long)barriers,
             (unsigned long)simd_barriers, (unsigned long)simd_operations);
    for (uint32_t i = 0; i < traffic.size() && request.observe == COUNT; i++) {
        const Traffic& t = traffic[i];
        const uint64_t numbers[] = {
            t.read,     t.written, t.reads,  t.writes,          t.wide, marked(t.was_read), marked(t.was_written),
            t.together, t.lines,   t.cycles, t.cycles - t.least};
        tell("= count %u", i);
        for (uint64_t number : numbers) tell(" %lu", (unsigned long)number);
        tell("\n");
    }
    for (uint32_t i = request.buffers; request.observe != NOTHING && i < regions_used(); i++)
        tell("= variable %u %u %s\n", i, region_at(i).item, region_at(i).name);
    flush();
}
