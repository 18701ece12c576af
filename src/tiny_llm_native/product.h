// A product with a quantised matrix, x W^T, as its kernels are given it. W is packed as quantize.py says.
#pragma once
#include "kernel.h"

namespace tiny_llm {

// in: x, packed, scales, biases; out: x W^T; numbers: bits, group size
struct Product {
    const Array &x, &packed, &scales, &biases, &out;
    int bits, group_size, per_word;  // per_word: elements in a word
    int64_t M, N, K;                 // rows of x, rows of W, numbers in each
    int64_t words, groups;           // in a row of W
    Threads threads;

    explicit Product(const Call& call)
        : x(call.in[0]),
          packed(call.in[1]),
          scales(call.in[2]),
          biases(call.in[3]),
          out(call.out[0]),
          bits(int(call.numbers[0])),
          group_size(int(call.numbers[1])),
          per_word(32 / bits),
          M(x.shape[0]),
          N(packed.shape[0]),
          K(x.last()),
          words(packed.last()),
          groups(scales.last()),
          threads(call.threads) {}
};

// Numbers of any dtype as float; asks memory for those behind them, which will be next. Kept apart from the loops that
// call it, which are faster so.
[[gnu::noinline]] static void widen(const Array& from, int64_t start, int64_t count, float* to) {
    dispatch(from.dtype, [=, &from]<typename T>(T*) {
        const T* numbers = from.as<T>() + start;
        for (int64_t i = 0; i < count; i++) to[i] = numbers[i];
        for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(numbers + count + i);
    });
}

// The other way round: results in the dtype of an array.
[[gnu::noinline]] static void narrow(const float* from, int64_t count, const Array& to, int64_t start) {
    dispatch(to.dtype, [=, &to]<typename T>(T*) {
        for (int64_t i = 0; i < count; i++) to.as<T>()[start + i] = from[i];
    });
}

}  // namespace tiny_llm
