// Whole products with weights in panels (panels.h), on all threads.
//
// A struct says how weights are stored and in which number type they are multiplied: Float32, Bfloat16 and Int8 are for
// weights in 4 bits. The compiler's options name the structs for products with few, some and many rows of x:
// arithmetic.py measures which of them are the fastest. unquantised.cpp names a struct of its own.
#pragma once
#include "instructions.h"
#include "panels_float.h"
#ifdef TINY_LLM_HAS_BFLOAT16
#include "panels_bf16.h"
#endif
#ifdef TINY_LLM_HAS_INT8
#include "panels_int8.h"
#endif
#ifdef TINY_LLM_HAS_TILES
#include "panels_tiles.h"
#endif

#ifndef TINY_LLM_FEW
#define TINY_LLM_FEW Float32
#define TINY_LLM_SOME Float32
#define TINY_LLM_MANY Float32
#endif

namespace tiny_llm {

constexpr int64_t FEW = 8, SOME = 32;  // rows, at most

// Calls f with the number type for a product with this many rows of x.
template <typename F>
void with_arithmetic(int64_t rows, F f) {
    if (rows <= FEW)
        f.template operator()<TINY_LLM_FEW>();
    else if (rows <= SOME)
        f.template operator()<TINY_LLM_SOME>();
    else
        f.template operator()<TINY_LLM_MANY>();
}

// Rows of x in the form that the product's number type needs, and the sum of each group of each row.
struct PreparedRows {
    char* inputs;
    float* sums;
    int64_t count, columns;

    void prepare(int64_t m, const float* x) const {
        with_arithmetic(count, [&]<typename A>() { A::prepare(x, columns, inputs_of<A>(m), sums_of(m)); });
    }
    template <typename A>
    typename A::Input* inputs_of(int64_t m) const {
        return reinterpret_cast<typename A::Input*>(inputs) + m * columns / GROUP * A::INPUTS;
    }
    float* sums_of(int64_t m) const { return sums + m * columns / GROUP; }
};

template <int slot>
PreparedRows rows_for(int64_t count, int64_t columns) {
    const int64_t groups = count * columns / GROUP;
    char* inputs;
    with_arithmetic(
        count, [&]<typename A>() { inputs = scratch<char, slot>(groups * A::INPUTS * sizeof(typename A::Input)); });
    return {inputs, scratch<float, slot + 1>(groups), count, columns};
}

// Calls f<M>() with M = count, which is 1 to `most`.
template <int most, typename F>
void with_count(int64_t count, F f) {
    if constexpr (most > 1) {
        if (count < most) return with_count<most - 1>(count, f);
    }
    f.template operator()<most>();
}

// Pointers to prepared rows, `most` of them at most.
template <typename A, int most>
struct Tile {
    const typename A::Input* inputs[most];
    const float* sums[most];
    int64_t count;

    Tile(const PreparedRows& x, int64_t first) : count(std::min<int64_t>(most, x.count - first)) {
        for (int64_t m = 0; m < count; m++)
            inputs[m] = x.template inputs_of<A>(first + m), sums[m] = x.sums_of(first + m);
    }
};

// Multiplies with panels without making them dense. PANELS panels are read at a time, once for TILE rows of x.
template <typename A, typename Use>
void multiply_panels(const PreparedRows& x, const Panels& weight, const Threads& threads, Use use) {
    const int64_t blocks = (weight.count() + A::PANELS - 1) / A::PANELS;
    threads(blocks, 4 / A::PANELS, [&](int64_t begin, int64_t end) {
        for (int64_t panel = begin * A::PANELS; panel < std::min(end * A::PANELS, weight.count()); panel += A::PANELS)
            with_count<A::PANELS>(std::min<int64_t>(A::PANELS, weight.count() - panel), [&]<int P>() {
                for (int64_t first = 0; first < x.count; first += A::TILE) {
                    const Tile<A, A::TILE> tile(x, first);
                    with_count<A::TILE>(tile.count, [&]<int M>() {
                        Sixteen out[M * P];
                        A::template panel_product<M, P>(weight.panel<A>(panel), weight.groups(), tile.inputs, tile.sums,
                                                        out);
                        for (int i = 0; i < M * P; i++) use(first + i / P, (panel + i % P) * ROWS, out[i]);
                    });
                }
            });
    });
}

// Makes each panel dense once for all rows of x, then multiplies. A slab is DENSE_PANELS panels. A thread makes up to
// DENSE_SLABS slabs before it reads x, so it reads x fewer times.
template <typename A, typename Use>
void multiply_dense(const PreparedRows& x, const Panels& weight, const Threads& threads, Use use) {
    constexpr int64_t PANELS = A::DENSE_PANELS;
    const int64_t groups = weight.groups(), size = groups * A::INPUTS * PANELS * ROWS;
    const int64_t slabs = (weight.count() + PANELS - 1) / PANELS;
    const int64_t together = std::clamp<int64_t>(slabs / (4 * threads.count), 1, A::DENSE_SLABS);
    threads(slabs, together, [&](int64_t begin, int64_t end) {
        auto* dense = scratch<typename A::Dense, 100>(together * size);
        for (int64_t low = begin; low < end; low += together) {
            const int64_t high = std::min(low + together, end);
            for (int64_t panel = low * PANELS; panel < std::min(high * PANELS, weight.count()); panel++) {
                auto* to = dense + (panel / PANELS - low) * size + panel % PANELS * ROWS;
                A::make_dense(weight.panel<A>(panel), groups, to, PANELS * ROWS);
            }
            for (int64_t first = 0; first < x.count; first += A::DENSE_TILE) {
                const Tile<A, A::DENSE_TILE> tile(x, first);
                for (int64_t slab = low; slab < high; slab++) {
                    Sixteen out[A::DENSE_TILE][PANELS];
                    with_count<A::DENSE_TILE>(tile.count, [&]<int M>() {
                        A::template dense_product<M>(dense + (slab - low) * size, groups, tile.inputs, out);
                    });
                    for (int64_t m = 0; m < tile.count; m++)
                        for (int64_t p = 0; p < std::min(PANELS, weight.count() - slab * PANELS); p++)
                            use(first + m, (slab * PANELS + p) * ROWS, out[m][p]);
                }
            }
        }
    });
}

// Multiplies, and calls use(m, row, sixteen) with 16 results: the products of row m of x with 16 rows of the weight,
// from `row` onwards.
template <typename Use>
void multiply(const PreparedRows& x, const Panels& weight, const Threads& threads, Use use) {
    with_arithmetic(x.count, [&]<typename A>() {
        if constexpr (requires { typename A::Dense; }) {
            if (x.count > A::TILE) return multiply_dense<A>(x, weight, threads, use);
        }
        multiply_panels<A>(x, weight, threads, use);
    });
}

}  // namespace tiny_llm
