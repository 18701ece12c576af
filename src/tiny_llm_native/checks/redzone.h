// For tests: a kernel runs on copies of its arrays, each between two redzones. A kernel that reads a redzone gets NaN;
// a kernel that writes to a redzone, or to an input, is reported.
#pragma once
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "guard.h"
#include "kernel.h"
#include "race_injection.h"

namespace tiny_llm {

class RedzoneCopy {
   public:
    RedzoneCopy(const Array& x, uint16_t margin, bool is_guarded = false)
        : array_(x), margin_(margin), is_guarded_(is_guarded) {
        const int64_t item = x.dtype == DType::bfloat16 || x.dtype == DType::float16 ? 2 : 4;
        int64_t first = 0, last = 0;  // of the elements in memory, counted from `data`: strides may be negative
        for (int i = 0; i < x.ndim; i++) {
            const int64_t reach = (x.shape[i] - 1) * x.strides[i];
            (reach < 0 ? first : last) += reach;
        }
        size_ = x.size() ? size_t((last - first + 1) * item) : 0;
        original_ = static_cast<char*>(x.data) + first * item;
        words_.assign((size_ + 2 * MARGIN + 2 * PAGE) / 2, margin);
        array_.data = copy() - first * item;
    }

    const Array& array() const { return array_; }
    RaceInjection::Memory memory() const { return {copy(), size_}; }
    char* end() const { return copy() + size_; }
    void bring() { std::memcpy(copy(), original_, size_); }
    void take_back() const { std::memcpy(original_, copy(), size_); }
    bool is_unchanged() const { return std::memcmp(copy(), original_, size_) == 0; }

    // Returns which bytes outside the array were written, such as "bytes 0 to 3 after its end", or an empty string.
    std::string out_of_bounds() const {
        if (auto before = touched(copy() - MARGIN); !before.empty()) return before + " of the margin before its start";
        if (auto after = touched(copy() + size_); !after.empty()) return after + " after its end";
        return {};
    }

   private:
    static constexpr size_t MARGIN = Guard::SIZE, PAGE = 1 << 14;  // bytes

    std::string touched(const char* margin) const {
        const char* want = reinterpret_cast<const char*>(&margin_);
        if (std::memcmp(margin, want, 2) == 0 && std::memcmp(margin, margin + 2, MARGIN - 2) == 0) return {};
        size_t first = 0, last = MARGIN - 1;
        while (margin[first] == want[first % 2]) first++;
        while (margin[last] == want[last % 2]) last--;
        return "bytes " + std::to_string(first) + " to " + std::to_string(last);
    }

    // The copy is at the same place of a page each time, so that every run is alike. It is aligned no better than an
    // array of MLX. A guarded copy ends where a page ends.
    char* copy() const {
        const auto start = reinterpret_cast<uintptr_t>(words_.data()) + MARGIN;
        if (is_guarded_) return reinterpret_cast<char*>((start + size_ + PAGE - 1) / PAGE * PAGE - size_);
        return reinterpret_cast<char*>((start + PAGE - 1) / PAGE * PAGE + 8);
    }

    Array array_;
    uint16_t margin_;
    bool is_guarded_;
    size_t size_;
    char* original_;
    std::vector<uint16_t> words_;
};

// Runs a kernel on copies between redzones. Returns the forbidden thing that the kernel did, or an empty string. The
// first `changed` outputs hold the numbers that the kernel is to change.
inline std::string run_between_redzones(void (*function)(const Call&), const std::vector<Array>& in,
                                        const std::vector<Array>& out, size_t changed, const double* numbers,
                                        Threads threads) {
    constexpr uint16_t NAN_IN = 0x7fc1, NAN_OUT = 0xffff;  // NaN in 16 bits, and doubled in 32; two different NaNs
    std::vector<RedzoneCopy> inputs, outputs;
    std::vector<Array> in_copies, out_copies;
    std::vector<char*> guarded;
    for (auto& x : in) inputs.emplace_back(x, NAN_IN, Guard::is_on).bring();
    for (auto& x : out) outputs.emplace_back(x, NAN_OUT);
    for (size_t i = 0; i < changed; i++) outputs[i].bring();
    RaceInjection::inputs = RaceInjection::outputs = {};
    for (auto& x : inputs) in_copies.push_back(x.array()), RaceInjection::inputs.push_back(x.memory());
    for (auto& x : outputs) out_copies.push_back(x.array()), RaceInjection::outputs.push_back(x.memory());
    if (Guard::is_on)
        for (auto& x : inputs) guarded.push_back(x.end());
    Guard guard(guarded);
    function({in_copies.data(), out_copies.data(), numbers, threads});
    const int read = guard.lift();
    for (auto& x : outputs) x.take_back();
    if (auto found = std::exchange(RaceInjection::violation, {}); !found.empty()) return found;
    for (size_t i = 0; i < outputs.size(); i++)
        if (auto where = outputs[i].out_of_bounds(); !where.empty())
            return "wrote outside of output " + std::to_string(i) + ": " + where;
    for (size_t i = 0; i < inputs.size(); i++)
        if (!inputs[i].is_unchanged() || !inputs[i].out_of_bounds().empty())
            return "wrote to input " + std::to_string(i);
    if (read != Guard::NONE) return "read past the end of input " + std::to_string(read);
    return {};
}

}  // namespace tiny_llm
