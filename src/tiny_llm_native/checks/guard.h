// For tests: the memory after each input is inaccessible, so a kernel that reads this memory is found even if the
// kernel does not use the numbers that it reads.
#pragma once
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <utility>
#include <vector>

namespace tiny_llm {

class Guard {
   public:
    static constexpr size_t SIZE = 1 << 18;  // bytes: whole pages
    static inline std::atomic<bool> is_on = false;

    // Guards SIZE bytes from each of these places onwards. Each place is the start of a page.
    explicit Guard(std::vector<char*> places) {
        guarded = std::move(places);
        touched = NONE;
        if (guarded.empty()) return;
        struct sigaction action = {};
        action.sa_sigaction = fault;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, &old_fault);
        sigaction(SIGBUS, &action, &old_bus);
        for (char* place : guarded) mprotect(place, SIZE, PROT_NONE);
    }

    // Returns the index of the place that was touched first, or NONE.
    int lift() {
        if (guarded.empty()) return NONE;
        for (char* place : guarded) mprotect(place, SIZE, PROT_READ | PROT_WRITE);
        guarded.clear();
        stop_listening();
        return touched;
    }

    static constexpr int NONE = -1;

   private:
    static inline std::vector<char*> guarded;
    static inline std::atomic<int> touched;
    static inline struct sigaction old_fault, old_bus;

    // Makes the memory accessible, so that the kernel goes on to its end.
    static void fault(int, siginfo_t* info, void*) {
        const char* at = static_cast<char*>(info->si_addr);
        for (size_t i = 0; i < guarded.size(); i++) {
            if (at < guarded[i] || at >= guarded[i] + SIZE) continue;
            int none = NONE;
            touched.compare_exchange_strong(none, int(i));
            mprotect(guarded[i], SIZE, PROT_READ | PROT_WRITE);
            return;
        }
        stop_listening();  // the fault happens again, and the previous handler handles it
    }

    static void stop_listening() {
        sigaction(SIGSEGV, &old_fault, nullptr);
        sigaction(SIGBUS, &old_bus, nullptr);
    }
};

}  // namespace tiny_llm
