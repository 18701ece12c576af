// Softmax of each row, in three versions, each faster than the one before.
#include <cmath>

#include "vector.h"

namespace tiny_llm {
namespace {

// One row of n numbers, one at a time. The largest number is subtracted first, so nothing overflows.
template <typename T>
void softmax_scalar(const T* x, T* out, int64_t n) {
    // task w2d2.2 begin
    // Week 2 Day 2 Task 2: what belongs here is yours to write.
    // Chapter: Measuring, and a first kernel.
    // Test: ./course test w2d2.2
    // task w2d2.2 end
}

// The same, WIDTH numbers at a time; n need not be a multiple of WIDTH.
template <typename T>
void softmax_vector(const T* x, T* out, int64_t n) {
    // task w2d2.3 begin
    // Week 2 Day 2 Task 3: what belongs here is yours to write.
    // Chapter: Measuring, and a first kernel.
    // Test: ./course test w2d2.3
    // task w2d2.3 end
}

// All rows, shared among threads.
template <typename T>
void softmax_threads(const T* x, T* out, int64_t rows, int64_t n, const Threads& threads) {
    // task w2d2.4 begin
    // Week 2 Day 2 Task 4: what belongs here is yours to write.
    // Chapter: Measuring, and a first kernel.
    // Test: ./course test w2d2.4
    // task w2d2.4 end
}

template <typename Row>
void each_row(const Call& call, Row row) {
    const Array &x = call.in[0], &out = call.out[0];
    const int64_t n = x.last(), rows = n ? x.size() / n : 0;
    dispatch(x.dtype, [&]<typename T>(T*) {
        for (int64_t i = 0; i < rows; i++) row(x.as<T>() + i * n, out.as<T>() + i * n, n);
    });
}

}  // namespace
}  // namespace tiny_llm

using namespace tiny_llm;

KERNEL(softmax_scalar) {
    each_row(call, [](auto* x, auto* out, int64_t n) { softmax_scalar(x, out, n); });
}

KERNEL(softmax_vector) {
    each_row(call, [](auto* x, auto* out, int64_t n) { softmax_vector(x, out, n); });
}

KERNEL(softmax) {
    const Array &x = call.in[0], &out = call.out[0];
    const int64_t n = x.last();
    if (x.size() == 0) return;
    dispatch(x.dtype, [&]<typename T>(T*) { softmax_threads(x.as<T>(), out.as<T>(), x.size() / n, n, call.threads); });
}
