// 4-bit weights in the order in which a processor wants to read them, and products with a few rows of them.
//
// A panel is 16 rows of the weight. For each group of 64 columns it holds 16 scales and 16 biases in bfloat16, and then
// 8 lines of 16 words, one word of each row: 8 columns of 4 bits, the first in the lowest bits. So a product with a
// vector reads memory from one end to the other, each row has a lane of its own, and nothing is summed across lanes.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>

#include "vector.h"

namespace tiny_llm {

constexpr int ROWS = 16, GROUP = 64, LINES = 8;       // of a panel
constexpr int64_t PANEL_GROUP = ROWS + LINES * ROWS;  // words: scales and biases, levels

struct Panels {
    const uint32_t* data;
    int64_t rows, columns;

    int64_t count() const { return rows / ROWS; }
    int64_t groups() const { return columns / GROUP; }
    const uint32_t* operator[](int64_t panel) const { return data + panel * groups() * PANEL_GROUP; }
};

// Memory of one thread that is kept from call to call.
template <typename T, int slot>
T* scratch(int64_t size) {
    static thread_local std::unique_ptr<char[]> memory;
    static thread_local int64_t bytes = 0;
    const int64_t wanted = size * int64_t(sizeof(T)) + 64;
    if (wanted > bytes) memory.reset(new char[bytes = wanted + wanted / 4]);
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t(63));
}

}  // namespace tiny_llm

// What a thread computes with: each has the same names, for what a kind of processor can do.
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#include "panels_bf16.h"
#elif defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include "panels_int8.h"
#else
#include "panels_float.h"
#endif
