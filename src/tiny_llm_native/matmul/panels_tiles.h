// Products of panels with AMX. A tile is a register of 16 rows of 64 bytes, and one instruction multiplies two tiles.
#pragma once
#include "panels_bf16.h"

namespace tiny_llm {

constexpr int TILE_ROWS = 16, MOST_ROWS = 32;  // of x: in one tile, and in two

// How a product with `count` rows of x uses tiles: tiles 0 to 3 hold sums, tiles 4 and 5 hold rows of x, and tiles 6
// and 7 hold weights. Tiles 2, 3 and 5 are for the rows of x after the first 16.
struct alignas(64) Tiles {
    uint8_t palette = 1, start = 0, unused[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};  // in a row of each tile
    uint8_t rows[16];

    constexpr explicit Tiles(int count) : rows() {
        const uint8_t first = std::min(count, TILE_ROWS), second = std::max(count - TILE_ROWS, 1);
        for (int tile = 0; tile < 8; tile++) rows[tile] = TILE_ROWS;
        rows[0] = rows[1] = rows[4] = first;
        rows[2] = rows[3] = rows[5] = second;
    }
};

// Makes the compiler finish all stores, because GCC's tile loads do not tell it that they read memory.
inline void finish_stores() { asm volatile("" ::: "memory"); }

struct Bfloat16Tiles : Bfloat16 {
    static constexpr int DENSE_PANELS = 2, DENSE_SLABS = 4, DENSE_TILE = MOST_ROWS;

    // Multiplies M rows of x with two dense panels. A tile of W has 16 pairs of columns of one panel.
    template <int M>
    [[gnu::noinline]] static void dense_product(const Dense* dense, int64_t groups, const Input* const* inputs,
                                                Sixteen (*out)[DENSE_PANELS]) {
        static constexpr Tiles tiles(M);
        constexpr int64_t WIDE = DENSE_PANELS * sizeof(Sixteen);
        const int64_t apart = groups * INPUTS * sizeof(Input);
        finish_stores();
        _tile_loadconfig(&tiles);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t i = 0; i < groups * INPUTS; i += TILE_ROWS, dense += TILE_ROWS * DENSE_PANELS * ROWS) {
            _tile_loadd(4, inputs[0] + i, apart);
            _tile_loadd(6, dense, WIDE);
            _tile_loadd(7, dense + ROWS, WIDE);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if constexpr (M > TILE_ROWS) {
                _tile_loadd(5, inputs[TILE_ROWS] + i, apart);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
        _tile_stored(0, &out[0][0], WIDE);
        _tile_stored(1, &out[0][1], WIDE);
        if constexpr (M > TILE_ROWS) {
            _tile_stored(2, &out[TILE_ROWS][0], WIDE);
            _tile_stored(3, &out[TILE_ROWS][1], WIDE);
        }
        _tile_release();
    }
};

}  // namespace tiny_llm
