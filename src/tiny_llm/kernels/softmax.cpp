// Softmax of each row, in three versions, each faster than the previous one.
#include <cmath>

#include "vector.h"

namespace tiny_llm {
namespace {

// Computes one row of n numbers, one number at a time. The largest number is subtracted first, so nothing overflows.
template <typename T>
void softmax_scalar(const T* x, T* out, int64_t n) {
    // task w2d2.2 begin
    // Week 2 Day 2 Task 2: what belongs here is yours to write.
    // Chapter: Measuring, and a first kernel.
    // Test: ./course test w2d2.2
    // task w2d2.2 end
}

// Computes the same, WIDTH numbers at a time; n need not be a multiple of WIDTH.
template <typename T>
void softmax_vector(const T* x, T* out, int64_t n) {
    // task w2d2.3 begin
    // Week 2 Day 2 Task 3: what belongs here is yours to write.
    // Chapter: Measuring, and a first kernel.
    // Test: ./course test w2d2.3
    // task w2d2.3 end
}

// Computes all rows, which threads share.
template <typename T>
void softmax_threads(const T* x, T* out, int64_t rows, int64_t n, const Threads& threads) {
    // task w2d2.4 begin
    // Week 2 Day 2 Task 4: what belongs here is yours to write.
    // Chapter: Measuring, and a first kernel.
    // Test: ./course test w2d2.4
    // task w2d2.4 end
}

struct SoftmaxArguments {
    In<float> x;
    Out<float> out;
    Threads threads;
};

template <typename Row>
void each_row(const SoftmaxArguments& call, Row row) {
    const int64_t n = call.x.last(), rows = n ? call.x.size() / n : 0;
    dispatch_float(call.x.dtype, [&]<typename T>(T*) {
        for (int64_t i = 0; i < rows; i++) row(call.x.as<T>() + i * n, call.out.as<T>() + i * n, n);
    });
}

}  // namespace
}  // namespace tiny_llm

using namespace tiny_llm;

KERNEL(softmax_scalar, SoftmaxArguments) {
    each_row(call, [](auto* x, auto* out, int64_t n) { softmax_scalar(x, out, n); });
}

KERNEL(softmax_vector, SoftmaxArguments) {
    each_row(call, [](auto* x, auto* out, int64_t n) { softmax_vector(x, out, n); });
}

KERNEL(softmax, SoftmaxArguments) {
    const int64_t n = call.x.last();
    if (call.x.size() == 0) return;
    dispatch_float(call.x.dtype, [&]<typename T>(T*) {
        softmax_threads(call.x.as<T>(), call.out.as<T>(), call.x.size() / n, n, call.threads);
    });
}
