// Softmax of each row, in three versions, each faster than the previous one.
#include <cmath>

#include "vector.h"

namespace tiny_llm {
namespace {

// Computes one row of n numbers, one number at a time. The largest number is subtracted first, so nothing overflows.
template <typename T>
void softmax_scalar(const T* x, T* out, int64_t n) {
    // task w2d2.2 begin
    float largest = -INFINITY, total = 0;
    for (int64_t i = 0; i < n; i++) largest = std::fmax(largest, x[i]);
    for (int64_t i = 0; i < n; i++) total += std::exp(x[i] - largest);
    for (int64_t i = 0; i < n; i++) out[i] = std::exp(x[i] - largest) / total;
    // task w2d2.2 end
}

// Computes the same, WIDTH numbers at a time; n need not be a multiple of WIDTH.
template <typename T>
void softmax_vector(const T* x, T* out, int64_t n) {
    // task w2d2.3 begin
    const int64_t whole = n - n % WIDTH;
    floats largest = splat(-INFINITY), total = {};
    for (int64_t i = 0; i < whole; i += WIDTH) largest = max(largest, load(x + i));
    float most = max(largest);
    for (int64_t i = whole; i < n; i++) most = std::fmax(most, x[i]);

    for (int64_t i = 0; i < whole; i += WIDTH) total += exp(load(x + i) - most);
    float sums = sum(total);
    for (int64_t i = whole; i < n; i++) sums += std::exp(x[i] - most);

    const float share = 1 / sums;
    for (int64_t i = 0; i < whole; i += WIDTH) store(out + i, exp(load(x + i) - most) * share);
    for (int64_t i = whole; i < n; i++) out[i] = std::exp(x[i] - most) * share;
    // task w2d2.3 end
}

// Computes all rows, which threads share.
template <typename T>
void softmax_threads(const T* x, T* out, int64_t rows, int64_t n, const Threads& threads) {
    // task w2d2.4 begin
    const int64_t grain = 1 + 16384 / n;  // rows: fewer take less time than waking a thread
    threads(rows, grain, [=](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row++) softmax_vector(x + row * n, out + row * n, n);
    });
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
