// The parts from which attention.cpp is built: given. All arrays are read through strides, and all results are computed
// in float.
#pragma once
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>
#include <vector>

#include "rows.h"
#include "vector.h"

namespace tiny_llm {

constexpr int64_t QUERIES = 64, KEYS = 64;  // per block
constexpr int64_t PART = 256;               // keys per part, where threads share the keys
constexpr int64_t PIECE = 16, AHEAD = 32;   // how many keys are scored at a time; how many rows ahead are prefetched

struct AttentionArguments {
    In<float> query, key, value;  // heads of L x D, S x D, S x D
    Out<float> out;               // as query
    float scale;
    bool causal;
    Threads threads;
};

struct Problem {
    StridedRows query, key, value;
    Array out;
    int64_t L, S, D, query_heads, kv_heads;  // heads: of all N.. together
    int64_t group, padded;                   // query heads per key head; D, rounded up to a multiple of 16
    float scale;
    bool causal;

    explicit Problem(const AttentionArguments& call)
        : query(call.query), key(call.key), value(call.value), out(call.out), scale(call.scale), causal(call.causal) {
        const Array &q = call.query, &k = call.key;
        L = q.shape[q.ndim - 2], S = k.shape[k.ndim - 2], D = q.last();
        query_heads = q.size() / (L * D), kv_heads = k.size() / (S * D);
        group = query_heads / kv_heads, padded = (D + 15) / 16 * 16;
    }
    virtual ~Problem() = default;

    // Returns how many keys query i sees, from the first key on. If causal, none is after its own position, S - L + i.
    int64_t seen(int64_t i) const { return causal ? S - L + i + 1 : S; }

    // Loads query i of a head, times scale, padded with zeros.
    virtual void load_query(int64_t head, int64_t i, float* to) const {
        dispatch_float(out.dtype, [&]<typename T>(T*) { widen(query.at<T>(head * L + i), to); });
        for (int64_t d = 0; d < D; d++) to[d] *= scale;
    }

    // Stores the result of query i.
    virtual void store_result(int64_t head, int64_t i, const float* from) const {
        dispatch_float(out.dtype, [&]<typename T>(T*) {
            T* to = out.as<T>() + (head * L + i) * D;
            int64_t d = 0;
            for (; d + WIDTH <= D; d += WIDTH) store(to + d, load(from + d));
            for (; d < D; d++) to[d] = from[d];
        });
    }

    // Loads `count` keys or values of a head from `first` onwards, padded with zeros.
    virtual void load_rows(const StridedRows& rows, int64_t kv_head, int64_t first, int64_t count, float* to) const {
        copy_rows(rows, kv_head * S + first, count, to);
    }

   protected:
    Problem(StridedRows query, StridedRows key, StridedRows value, Array out)
        : query(std::move(query)), key(std::move(key)), value(std::move(value)), out(out) {}

    // Copies rows that follow one another.
    void copy_rows(const StridedRows& rows, int64_t first, int64_t count, float* to) const {
        dispatch_float(out.dtype, [&]<typename T>(T*) {
            const T* from = rows.at<T>(first);
            for (int64_t j = 0; j < count; j++) widen(from + j * rows.step(), to + j * padded);
        });
    }

   private:
    template <typename T>
    void widen(const T* from, float* to) const {
        int64_t d = 0;
        for (; d + WIDTH <= D; d += WIDTH) store(to + d, load(from + d));
        for (; d < padded; d++) to[d] = d < D ? float(from[d]) : 0;
    }
};

constexpr int TILE_ROWS = WIDTH == 8 ? 4 : 8, TILE_VECTORS = 2;  // sums in registers, of which AVX2 has only 16

// c += a b, where b and c have QUERIES columns, and a[r * down + k * right] is in row r and column k of a.
inline void multiply_add(const float* a, int64_t down, int64_t right, const float* b, float* c, int64_t rows,
                         int64_t inner) {
    for (int64_t column = 0; column < QUERIES; column += TILE_VECTORS * WIDTH)
        for (int64_t row = 0; row < rows; row += TILE_ROWS) {
            floats sums[TILE_ROWS][TILE_VECTORS] = {};
            for (int64_t k = 0; k < inner; k++)
                for (int r = 0; r < TILE_ROWS; r++)
                    for (int v = 0; v < TILE_VECTORS; v++)
                        sums[r][v] += a[(row + r) * down + k * right] * load(b + k * QUERIES + column + v * WIDTH);
            for (int r = 0; r < TILE_ROWS; r++)
                for (int v = 0; v < TILE_VECTORS; v++) {
                    float* to = c + (row + r) * QUERIES + column + v * WIDTH;
                    store(to, load(to) + sums[r][v]);
                }
        }
}

// The working memory for a thread, all of it float. queries, scores and out have one column per query.
struct Block {
    std::vector<float> keys, values, queries, scores, out, largest, total;

    explicit Block(int64_t padded)
        : keys(KEYS * padded),
          values(KEYS * padded),
          queries(padded * QUERIES),
          scores(KEYS * QUERIES),
          out(padded * QUERIES),
          largest(QUERIES),
          total(QUERIES) {}

    void load_queries(const Problem& p, int64_t head, int64_t first, int64_t count) {
        std::fill(queries.begin(), queries.end(), 0.f);
        for (int64_t i = 0; i < count; i++) {
            p.load_query(head, first + i, keys.data());
            for (int64_t d = 0; d < p.D; d++) queries[d * QUERIES + i] = keys[d];
        }
        std::fill(out.begin(), out.end(), 0.f);
        std::fill(largest.begin(), largest.end(), -INFINITY);
        std::fill(total.begin(), total.end(), 0.f);
    }

    void load_keys(const Problem& p, int64_t head, int64_t first, int64_t count) {
        p.load_rows(p.key, head / p.group, first, count, keys.data());
        p.load_rows(p.value, head / p.group, first, count, values.data());
    }

    void store_out(const Problem& p, int64_t head, int64_t first, int64_t count) {
        for (int64_t i = 0; i < count; i++) {
            for (int64_t d = 0; d < p.D; d++) keys[d] = out[d * QUERIES + i];
            p.store_result(head, first + i, keys.data());
        }
    }
};

}  // namespace tiny_llm

#include "decode_attention.h"
