// What a checked run counts (how much memory a kernel moves, and in which pieces), and what it tells of one
// threadgroup, event by event. It says so in lines that begin with "=", which observe.py reads.
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "memory.h"

namespace {
enum Observe : uint32_t { NOTHING, COUNT, TRACE };
constexpr uint32_t LINE = 64, BANKS = 32, BANK = 4, MOST_EVENTS = 100000;

struct Traffic {
    uint64_t read, written, reads, writes, wide;  // in bytes, and in accesses of a thread
    uint64_t together, lines, cycles, least;      // of a simdgroup, whose lanes do the same at once
    std::vector<bool> was_read, was_written;      // for each byte
};
struct Turn {  // an access of a lane. Lanes that do the same for the same time do it together.
    uintptr_t code;
    uint32_t turn, region;
    uint64_t at;
    uint32_t bytes;
};
std::vector<Traffic> traffic;
std::vector<std::vector<Turn>> turns;                        // of each simdgroup, since the last barrier
std::map<std::pair<uintptr_t, uint32_t>, uint32_t> counted;  // how often a thread came to a place of the code
uint64_t barriers, simd_barriers, simd_operations, threadgroups;
uint32_t events;
std::string said;

void flush() {
    for (size_t done = 0; done < said.size();) {
        const ssize_t n = write(1, said.data() + done, said.size() - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
    said.clear();
}

void tell(const char* format, ...) __attribute__((format(printf, 1, 2)));
void tell(const char* format, ...) {
    char line[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    said += line;
    if (said.size() > 1 << 16) flush();
}

bool is_traced() {
    if (request.observe != TRACE || threads.group != request.traced || threads.current < 0) return false;
    if (events == MOST_EVENTS) tell("= more\n");
    return events++ < MOST_EVENTS;
}

uint64_t different(std::vector<uint64_t>& values) {
    std::sort(values.begin(), values.end());
    return (uint64_t)(std::unique(values.begin(), values.end()) - values.begin());
}

// Threadgroup memory hands out one word of each bank at a time.
void count_cycles(const Turn* first, const Turn* last, Traffic& sum) {
    std::vector<uint64_t> words;
    for (const Turn* t = first; t < last; t++)
        for (uint64_t word = t->at / BANK; word <= (t->at + t->bytes - 1) / BANK; word++) words.push_back(word);
    words.resize(different(words));
    uint64_t of_bank[BANKS] = {};
    for (uint64_t word : words) of_bank[word % BANKS]++;
    sum.cycles += *std::max_element(of_bank, of_bank + BANKS);
    sum.least += (words.size() + BANKS - 1) / BANKS;
}

void count_lines(const Turn* first, const Turn* last, Traffic& sum) {
    std::vector<uint64_t> lines;
    for (const Turn* t = first; t < last; t++)
        for (uint64_t line = t->at / LINE; line <= (t->at + t->bytes - 1) / LINE; line++) lines.push_back(line);
    sum.lines += different(lines);
}

void settle_turns() {
    for (auto& all : turns) {
        std::sort(all.begin(), all.end(), [](const Turn& a, const Turn& b) {
            return std::tie(a.code, a.turn, a.region) < std::tie(b.code, b.turn, b.region);
        });
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
    std::fill_n(touched.begin() + (ptrdiff_t)at, bytes, true);
    (writes ? sum.written : sum.read) += bytes;
    (writes ? sum.writes : sum.reads)++;
    sum.wide += bytes >= 16;
    const uint32_t me = (uint32_t)threads.current;
    if (turns.size() <= me / MSL_LANES) turns.resize(me / MSL_LANES + 1);
    turns[me / MSL_LANES].push_back({code, counted[{code, me}]++, region, at, bytes});
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
    counted.clear();
}

void tell_observed() {
    if (request.observe == COUNT)
        tell("= run %lu %lu %lu %lu\n", (unsigned long)threadgroups, (unsigned long)barriers,
             (unsigned long)simd_barriers, (unsigned long)simd_operations);
    for (uint32_t i = 0; i < traffic.size() && request.observe == COUNT; i++) {
        const Traffic& t = traffic[i];
        const uint64_t numbers[] = {t.read,
                                    t.written,
                                    t.reads,
                                    t.writes,
                                    t.wide,
                                    (uint64_t)std::count(t.was_read.begin(), t.was_read.end(), true),
                                    (uint64_t)std::count(t.was_written.begin(), t.was_written.end(), true),
                                    t.together,
                                    t.lines,
                                    t.cycles,
                                    t.cycles - t.least};
        tell("= count %u", i);
        for (uint64_t number : numbers) tell(" %lu", (unsigned long)number);
        tell("\n");
    }
    for (uint32_t i = request.buffers; request.observe != NOTHING && i < regions_used(); i++)
        tell("= variable %u %s\n", i, region_at(i).name);
    flush();
}
