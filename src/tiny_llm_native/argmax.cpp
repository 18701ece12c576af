// The index of the largest number in each row: given.
#include <algorithm>
#include <cmath>

#include "rows.h"
#include "vector.h"

using namespace tiny_llm;

// Returns the index of the largest number: the first index if several numbers are the largest. A NaN is never the
// largest.
template <typename T>
int32_t argmax_of(const T* x, int64_t n) {
    constexpr int64_t BLOCK = 16 * WIDTH;  // one block is searched number by number
    float best = -INFINITY;
    int64_t block = 0, i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        floats largest = splat(-INFINITY);
        for (int64_t j = 0; j < BLOCK; j += WIDTH) largest = max(load(x + i + j), largest);
        if (const float found = max(largest); found > best) best = found, block = i;
    }
    for (int64_t j = i; j < n; j++)
        if (float(x[j]) > best) best = x[j], block = j;
    for (int64_t j = block; j < std::min(n, block + BLOCK); j++)
        if (float(x[j]) == best) return int32_t(j);
    return 0;
}

namespace {
struct ArgmaxArguments {
    In<float> x;       // N.. x V
    Out<int32_t> out;  // N..
    Threads threads;
};
}  // namespace

KERNEL(argmax, ArgmaxArguments) {
    const StridedRows rows(call.x);
    dispatch_float(call.x.dtype, [&]<typename T>(T*) {
        call.threads(call.out.size(), 1, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; row++)
                call.out.as<int32_t>()[row] = argmax_of(rows.at<T>(row), call.x.last());
        });
    });
}
