// Weights in the order in which a processor reads them fastest.
//
// A panel is 16 rows of the weight, and stores one group of 64 columns after the other. Each row has a lane of its own.
// So a product with a vector reads memory from one end to the other, and no sum crosses lanes.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>

#include "vector.h"

namespace tiny_llm {

constexpr int ROWS = 16, GROUP = 64, LINES = 8;   // of a panel
constexpr int PARTS = ROWS / WIDTH;               // registers for one number of each row
constexpr int64_t AHEAD = 1152, CACHE_LINE = 16;  // words: how far ahead memory is prefetched (4.5 KiB); 64 bytes

struct Panels {
    const uint32_t* data;
    int64_t rows, columns;

    int64_t count() const { return rows / ROWS; }
    int64_t groups() const { return columns / GROUP; }
    template <typename Format>
    const uint32_t* panel(int64_t index) const {
        return data + index * groups() * Format::PANEL_GROUP;
    }
};

// Prefetches as many words as a group has, some groups ahead, because the processor's own prefetching stops at the end
// of each page.
template <typename Format>
void prefetch_after(const uint32_t* group) {
    for (int64_t i = 0; i < Format::PANEL_GROUP; i += CACHE_LINE) __builtin_prefetch(group + AHEAD + i);
}

// One number per row of a panel.
struct Sixteen {
    floats part[PARTS];
};

inline Sixteen load_sixteen(const bfloat16* from) {
    Sixteen x;
    for (int p = 0; p < PARTS; p++) x.part[p] = load(from + p * WIDTH);
    return x;
}
inline void to_floats(float* to, Sixteen x) {
    for (int p = 0; p < PARTS; p++) store(to + p * WIDTH, x.part[p]);
}

// Weights in 4 bits. A group has 16 scales and 16 biases in bfloat16, and then 8 lines of 16 words. A line has one word
// for each row, with 8 columns of 4 bits each. The first column is in the lowest bits.
struct FourBits {
    static constexpr int64_t PANEL_GROUP = ROWS + LINES * ROWS;  // words
    static constexpr int PANELS = 1;                             // that a product reads together

    static Sixteen scales_of(const uint32_t* group) { return load_sixteen(reinterpret_cast<const bfloat16*>(group)); }
    static Sixteen biases_of(const uint32_t* group) {
        return load_sixteen(reinterpret_cast<const bfloat16*>(group) + ROWS);
    }
    static words line_of(const uint32_t* group, int line, int part) {
        words levels;
        std::memcpy(&levels, group + ROWS + line * ROWS + part * WIDTH, sizeof levels);
        return levels;
    }

    // Writes the 64 numbers of one row of a group.
    template <typename T>
    static void read_row(const uint32_t* group, int64_t row, T* to) {
        const auto* head = reinterpret_cast<const bfloat16*>(group);
        const float scale = head[row], bias = head[ROWS + row];
        for (int line = 0; line < LINES; line++)
            for (int j = 0; j < 8; j++) *to++ = (group[ROWS + line * ROWS + row] >> (4 * j) & 15) * scale + bias;
    }
};

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
