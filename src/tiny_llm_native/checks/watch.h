// For tests: how the MLX extension, built with TINY_LLM_WATCHED, calls a kernel. The build that programs load contains
// none of this folder's code.
#pragma once
#include <atomic>
#include <mutex>

#include "race_injection.h"
#include "redzone.h"

namespace tiny_llm {

class Watch {
   public:
    static void call(void (*function)(const Call&), const std::vector<Array>& in, const std::vector<Array>& out,
                     size_t changed, const double* numbers, Threads threads) {
        if (injects_races) threads.run = RaceInjection::run;
        auto found = run_between_redzones(function, in, out, changed, numbers, threads);
        std::lock_guard lock(mutex);
        if (violation.empty()) violation = found;
    }

    // Returns the first violation since the last call, or an empty string.
    static std::string take_violation() {
        std::lock_guard lock(mutex);
        return std::exchange(violation, {});
    }

    static void set_race_injection(bool is_on) {
        injects_races = is_on;
        RaceInjection::start_again();
    }

    static void guard_inputs(bool is_on) { Guard::is_on = is_on; }

   private:
    static inline std::atomic<bool> injects_races = false;
    static inline std::mutex mutex;
    static inline std::string violation;
};

}  // namespace tiny_llm
