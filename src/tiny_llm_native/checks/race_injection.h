// For tests: the first part of a kernel's work stops in its middle until all other parts are done. This reveals memory
// that parts share by mistake, even on a machine where threads happen to take turns.
#pragma once
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernel.h"

namespace tiny_llm {

class RaceInjection {
   public:
    struct Memory {
        char* begin;
        size_t size;
    };
    static inline std::vector<Memory> inputs, outputs;  // of the kernel that runs
    static inline std::string violation;                // the forbidden thing that the kernel's parts did, or empty

    static void start_again() { random.seed(1); }  // so that each run is like the first

    static void run(void (*part)(void*, int64_t, int64_t), void* state, int64_t count, int64_t grain) {
        const int64_t share = std::max(grain, (count + 3) / 4);
        if (share >= count) return part(state, 0, count);
        const auto before = contents();
        stopped = resumed = false;
        set_trap();
        std::thread first([&] {
            part(state, 0, share);
            stopped = true;  // in case this part has not touched the trap
        });
        while (!stopped) sleep();
        if (trap) lift_trap();
        const auto half_done = contents();
        restore(before);
        for (int64_t begin = share; begin < count; begin += share) part(state, begin, std::min(begin + share, count));
        const auto others = contents();
        restore(half_done);
        resumed = true;
        first.join();
        add(others, before);
    }

   private:
    using Bytes = std::vector<std::vector<char>>;
    static inline std::atomic<bool> stopped, resumed;  // states of the first part
    static inline std::minstd_rand random;
    static inline char* trap = nullptr;  // memory that stops the part that touches it
    static inline size_t trap_size;
    static inline struct sigaction old_fault, old_bus;

    // Sets the trap in an array that is chosen at random, from a page in the array's first quarter onwards.
    static void set_trap() {
        auto all = inputs;
        all.insert(all.end(), outputs.begin(), outputs.end());
        const auto [begin, size] = all[random() % all.size()];
        const int64_t page = sysconf(_SC_PAGESIZE), address = reinterpret_cast<int64_t>(begin);
        const int64_t first = address / page, count = (address + int64_t(size) - 1) / page - first + 1;
        const int64_t skipped = random() % (count / 4 + 1);
        trap_size = (count - skipped) * page;
        trap = reinterpret_cast<char*>((first + skipped) * page);
        struct sigaction action = {};
        action.sa_sigaction = fault;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, &old_fault);
        sigaction(SIGBUS, &action, &old_bus);
        mprotect(trap, trap_size, PROT_NONE);
    }

    static void lift_trap() {
        mprotect(trap, trap_size, PROT_READ | PROT_WRITE);
        trap = nullptr;
        sigaction(SIGSEGV, &old_fault, nullptr);
        sigaction(SIGBUS, &old_bus, nullptr);
    }

    // Waits for a second at most, because the part that stopped may hold a lock that the other parts wait for.
    static void fault(int, siginfo_t* info, void*) {
        const char* at = static_cast<char*>(info->si_addr);
        const bool is_ours = trap <= at && at < trap + trap_size;
        lift_trap();
        if (!is_ours) return;  // the fault happens again, and the previous handler handles it
        stopped = true;
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
        while (!resumed && std::chrono::steady_clock::now() < end) sleep();
    }

    static void sleep() {
        const timespec moment = {0, 20'000};
        nanosleep(&moment, nullptr);
    }

    static Bytes contents() {
        Bytes all;
        for (auto [begin, size] : outputs) all.emplace_back(begin, begin + size);
        return all;
    }

    static void restore(const Bytes& all) {
        for (size_t i = 0; i < all.size(); i++) std::memcpy(outputs[i].begin, all[i].data(), all[i].size());
    }

    // Adds the numbers that the other parts wrote to those that the first part wrote.
    static void add(const Bytes& others, const Bytes& before) {
        for (size_t i = 0; i < before.size(); i++) {
            char* firsts = outputs[i].begin;
            for (size_t k = 0; k < before[i].size(); k++) {
                if (others[i][k] == before[i][k]) continue;
                if (firsts[k] != before[i][k])
                    violation = "computed the same numbers in two parts: each computes begin to end";
                firsts[k] = others[i][k];
            }
        }
    }
};

}  // namespace tiny_llm
