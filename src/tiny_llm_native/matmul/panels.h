// 4-bit weights in the order in which a processor reads them fastest.
//
// A panel is 16 rows of the weight. For each group of 64 columns it holds 16 scales and 16 biases in bfloat16, and then
// 8 lines of 16 words. A line has one word for each row, with 8 columns of 4 bits each. The first column is in the
// lowest bits. So a product with a vector reads memory from one end to the other. Each row has a lane of its own, and
// no sum crosses lanes.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>

#include "vector.h"

namespace tiny_llm {

constexpr int ROWS = 16, GROUP = 64, LINES = 8;       // of a panel
constexpr int64_t PANEL_GROUP = ROWS + LINES * ROWS;  // words: scales and biases, levels
constexpr int PARTS = ROWS / WIDTH;                   // registers for one number of each row

struct Panels {
    const uint32_t* data;
    int64_t rows, columns;

    int64_t count() const { return rows / ROWS; }
    int64_t groups() const { return columns / GROUP; }
    const uint32_t* operator[](int64_t panel) const { return data + panel * groups() * PANEL_GROUP; }
};

// One number per row of a panel.
struct Sixteen {
    floats part[PARTS];
};

inline Sixteen load_sixteen(const bfloat16* from) {
    Sixteen x;
    for (int p = 0; p < PARTS; p++) x.part[p] = load(from + p * WIDTH);
    return x;
}
inline Sixteen scales_of(const uint32_t* group) { return load_sixteen(reinterpret_cast<const bfloat16*>(group)); }
inline Sixteen biases_of(const uint32_t* group) {
    return load_sixteen(reinterpret_cast<const bfloat16*>(group) + ROWS);
}
inline words line_of(const uint32_t* group, int line, int part) {
    words levels;
    std::memcpy(&levels, group + ROWS + line * ROWS + part * WIDTH, sizeof levels);
    return levels;
}
inline void to_floats(float* to, Sixteen x) {
    for (int p = 0; p < PARTS; p++) store(to + p * WIDTH, x.part[p]);
}

// Returns memory that belongs to the calling thread and that is kept from call to call.
template <typename T, int slot>
T* scratch(int64_t size) {
    static thread_local std::unique_ptr<char[]> memory;
    static thread_local int64_t bytes = 0;
    const int64_t wanted = size * int64_t(sizeof(T)) + 64;
    if (wanted > bytes) memory.reset(new char[bytes = wanted + wanted / 4]);
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t(63));
}

}  // namespace tiny_llm
