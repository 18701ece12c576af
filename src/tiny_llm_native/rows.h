// The rows of an array with any strides: a view into a longer array is read without a copy.
#pragma once
#include <vector>

#include "kernel.h"

namespace tiny_llm {

// A row runs along the last axis; rows are counted in order. A row is copied only if its numbers are not next to each
// other.
class StridedRows {
   public:
    explicit StridedRows(const Array& x)
        : data_(x.as<char>()),
          item_(x.dtype == DType::bfloat16 || x.dtype == DType::float16 ? 2 : 4),
          step_(x.ndim > 1 ? x.strides[x.ndim - 2] : 0) {
        for (int axis = x.ndim - 2; axis >= 0; axis--) {
            if (!sizes_.empty() && x.strides[axis] == sizes_.back() * steps_.back()) {
                sizes_.back() *= x.shape[axis];  // evenly spaced across both axes
            } else {
                sizes_.push_back(x.shape[axis]), steps_.push_back(x.strides[axis]);
            }
        }
        if (x.size() && x.last() > 1 && x.strides[x.ndim - 1] != 1) copy(x);
    }

    template <typename T>
    const T* at(int64_t row) const {
        return reinterpret_cast<const T*>(data_ + place(row) * item_);
    }

    int64_t step() const { return step_; }  // from a row to the next one along the last axis but one

   private:
    int64_t place(int64_t row) const {
        int64_t sum = 0;
        for (size_t axis = 0; axis + 1 < sizes_.size(); axis++) {
            sum += row % sizes_[axis] * steps_[axis];
            row /= sizes_[axis];
        }
        return sizes_.empty() ? 0 : sum + row * steps_.back();
    }

    void copy(const Array& x) {
        const int64_t n = x.last(), apart = x.strides[x.ndim - 1], rows = x.size() / n;
        std::vector<char> numbers(x.size() * item_);
        for (int64_t i = 0; i < x.size(); i++)
            std::memcpy(&numbers[i * item_], data_ + (place(i / n) + i % n * apart) * item_, item_);
        copy_ = std::move(numbers), data_ = copy_.data(), step_ = n;
        sizes_ = {rows}, steps_ = {n};
    }

    const char* data_;
    int64_t item_, step_;                 // the bytes of a number; a count of numbers
    std::vector<int64_t> sizes_, steps_;  // of the axes before the last, from the right, merged where possible
    std::vector<char> copy_;
};

}  // namespace tiny_llm
