// The arguments of a product with a quantised matrix, x W^T. W is packed as quantize.py says.
#pragma once
#include "kernel.h"

namespace tiny_llm {

struct ProductArguments {
    In<float, 2> x;
    In<uint32_t, 2> packed;
    In<float, 2> scales, biases;
    Out<float, 2> out;  // x W^T
    int bits, group_size;
    Threads threads;
};

struct Product : ProductArguments {
    int per_word = 32 / bits;                                   // elements in a word
    int64_t M = x.shape[0], N = packed.shape[0], K = x.last();  // rows of x, rows of W, numbers per row
    int64_t words = packed.last(), groups = scales.last();      // in a row of W
};

// Turns numbers of any dtype into float, and prefetches the numbers after them, which are needed next. This function is
// kept apart from the loops that call it, because these loops are faster that way.
[[gnu::noinline]] static void widen(const Array& from, int64_t start, int64_t count, float* to) {
    dispatch_float(from.dtype, [=, &from]<typename T>(T*) {
        const T* numbers = from.as<T>() + start;
        for (int64_t i = 0; i < count; i++) to[i] = numbers[i];
        for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(numbers + count + i);
    });
}

// Stores results, which are float, in the dtype of an array.
[[gnu::noinline]] static void narrow(const float* from, int64_t count, const Array& to, int64_t start) {
    dispatch_float(to.dtype, [=, &to]<typename T>(T*) {
        for (int64_t i = 0; i < count; i++) to.as<T>()[start + i] = from[i];
    });
}

}  // namespace tiny_llm
