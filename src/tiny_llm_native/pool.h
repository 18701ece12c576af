// Threads that wait for work: awake for a moment, because the next kernel usually comes soon, then asleep, because
// other programs want the processor, too. There is nothing to clean up at exit.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>

namespace tiny_llm {

class Pool {
   public:
    using Part = void (*)(void* state, int64_t begin, int64_t end);

    explicit Pool(int threads) : threads_(threads) {}

    int threads() const { return threads_; }
    int64_t shared() const { return shared_; }

    // The caller takes parts, too, so it never waits for a thread that the system keeps from running, only for a thread
    // that has begun a part. Of several calls at the same time, or of nested calls, only the first uses threads.
    void run(Part part, void* state, int64_t count, int64_t grain) {
        if (count <= 0) return;
        const int64_t even = (count + 4 * threads_ - 1) / (4 * threads_);  // small: slow threads then take fewer parts
        const int64_t share = std::max({grain, even, int64_t(1)}), parts = (count - 1) / share + 1;
        if (threads_ == 1 || parts == 1 || busy_.exchange(true)) return part(state, 0, count);
        start();
        part_ = part, state_ = state, count_ = count, share_ = share;
        shared_ += parts;
        unfinished_ = parts;
        left_ = parts;  // from here on, any thread that takes a part reads all of the above
        {
            std::lock_guard lock(mutex_);
            round_++;
        }
        if (asleep_ > 0) wake_.notify_all();
        take_parts();
        wait_until([this] { return unfinished_ == 0; }, done_);
        busy_ = false;
    }

   private:
    static constexpr auto AWAKE = std::chrono::microseconds(100);

    void start() {
        for (; started_ < threads_ - 1; started_++) {
            try {
                std::thread([this] { wait_for_work(); }).detach();
            } catch (const std::system_error&) {  // the process may start no more threads
                return;
            }
        }
    }

    void wait_for_work() {
        for (uint64_t seen = 0;;) {
            wait_until([&] { return round_ != seen; }, wake_);
            seen = round_;
            take_parts();
        }
    }

    void take_parts() {
        for (int64_t number; (number = --left_) >= 0;) {
            const int64_t begin = number * share_;
            part_(state_, begin, std::min(begin + share_, count_));
            if (--unfinished_ == 0) {
                {
                    std::lock_guard lock(mutex_);
                }  // a thread that tested `unfinished_` earlier is asleep by now, and is woken
                done_.notify_one();
            }
        }
    }

    template <typename Condition>
    void wait_until(Condition holds, std::condition_variable& told) {
        const auto end = std::chrono::steady_clock::now() + AWAKE;
        for (int i = 0; !holds(); i++) {
            if (i % 64 == 63 && std::chrono::steady_clock::now() > end) {
                std::unique_lock lock(mutex_);
                asleep_++;
                told.wait(lock, holds);
                asleep_--;
                return;
            }
            pause();
        }
    }

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    const int threads_;
    int started_ = 0;
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::atomic<uint64_t> round_ = 0;
    std::atomic<int64_t> left_ = 0, unfinished_ = 0, shared_ = 0;  // left_: below 0, once all parts are taken
    std::atomic<int> asleep_ = 0;
    std::atomic<bool> busy_ = false;
    Part part_ = nullptr;
    void* state_ = nullptr;
    int64_t count_ = 0, share_ = 1;
};

// The pools, one for each number of threads, made when first needed. A forked process has neither threads nor pools of
// its parent.
class Pools {
   public:
    static constexpr int MOST = 256;  // threads

    static Pool& of(int threads) {
        auto& place = all()[threads];
        Pool* found = place;
        if (found == nullptr) {
            auto* made = new Pool(threads);  // never deleted: threads wait in it
            if (place.compare_exchange_strong(found, made)) return *made;
            delete made;
        }
        return *found;
    }

    static void forget() {
        for (auto& place : all()) place = nullptr;
    }

    static int64_t shared() {
        int64_t sum = 0;
        for (auto& place : all())
            if (Pool* pool = place) sum += pool->shared();
        return sum;
    }

   private:
    using All = std::atomic<Pool*>[MOST + 1];

    static All& all() {
        static All pools = {};
        return pools;
    }
};

}  // namespace tiny_llm
