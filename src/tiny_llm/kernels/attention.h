// What attention.cpp is written with: given. Everything is read through strides, and computed with as float.
#pragma once
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>
#include <vector>

#include "rows.h"
#include "vector.h"

namespace tiny_llm {

constexpr int64_t QUERIES = 64, KEYS = 64;  // of a block
constexpr int64_t PART = 256;               // keys, where the keys are shared out
constexpr int64_t AHEAD = 32;               // rows that are on their way from memory

struct Problem {
    StridedRows query, key, value;
    Array out;
    int64_t L, S, D, query_heads, kv_heads;  // heads: of all N.. together
    int64_t group, padded;                   // query heads to one of keys; D, up to a multiple of 16
    float scale;
    bool causal;

    explicit Problem(const Call& call) : query(call.in[0]), key(call.in[1]), value(call.in[2]), out(call.out[0]) {
        const Array &q = call.in[0], &k = call.in[1];
        L = q.shape[q.ndim - 2], S = k.shape[k.ndim - 2], D = q.last();
        query_heads = q.size() / (L * D), kv_heads = k.size() / (S * D);
        group = query_heads / kv_heads, padded = (D + 15) / 16 * 16;
        scale = call.numbers[0], causal = call.numbers[1];
    }

    // How many keys query i sees, from the first on: where causal, none behind its own position, S - L + i.
    int64_t seen(int64_t i) const { return causal ? S - L + i + 1 : S; }

    // Query i of a head, times scale, filled up with zeros.
    void load_query(int64_t head, int64_t i, float* to) const {
        dispatch(out.dtype, [&]<typename T>(T*) { widen(query.at<T>(head * L + i), to); });
        for (int64_t d = 0; d < D; d++) to[d] *= scale;
    }

    // The result for it.
    void store_result(int64_t head, int64_t i, const float* from) const {
        dispatch(out.dtype, [&]<typename T>(T*) {
            T* to = out.as<T>() + (head * L + i) * D;
            int64_t d = 0;
            for (; d + WIDTH <= D; d += WIDTH) store(to + d, load(from + d));
            for (; d < D; d++) to[d] = from[d];
        });
    }

    // `count` keys or values of a head from `first` on, filled up with zeros.
    void load_rows(const StridedRows& rows, int64_t kv_head, int64_t first, int64_t count, float* to) const {
        dispatch(out.dtype, [&]<typename T>(T*) {
            const T* from = rows.at<T>(kv_head * S + first);
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

constexpr int TILE_ROWS = WIDTH == 8 ? 4 : 8, TILE_VECTORS = 2;  // sums that stay in registers: AVX2 has but 16

// c += a b, where b and c have QUERIES columns, and a[r * down + k * right] stands in row r and column k of a.
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

// What a thread works with: all floats, and in queries, scores and out a column for each query.
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

template <int HALF, int... LANES>
floats swapped(floats x, std::integer_sequence<int, LANES...>) {
    return __builtin_shufflevector(x, x, (LANES ^ HALF)...);
}

// The sum of a vector's numbers, with a logarithm of additions.
template <int HALF = WIDTH / 2>
float folded(floats x) {
    if constexpr (HALF == 0)
        return x[0];
    else
        return folded<HALF / 2>(x + swapped<HALF>(x, std::make_integer_sequence<int, WIDTH>()));
}

// Asks for a row that is to be read soon: by the time it is, memory has delivered it.
template <typename T>
void fetch(const T* row, int64_t n) {
    for (int64_t i = 0; i < n; i += 64 / sizeof(T)) __builtin_prefetch(row + i);
}

// to[r * PART] = row r of a times b
template <int ROWS, typename T>
void dots(const float* a, const T* b, int64_t n, float* to) {
    floats sums[ROWS] = {};
    for (int64_t d = 0; d < n; d += WIDTH) {
        const floats x = load(b + d);
        for (int r = 0; r < ROWS; r++) sums[r] += load(a + r * n + d) * x;
    }
    for (int r = 0; r < ROWS; r++) to[r * PART] = folded(sums[r]);
}

// Row r of out += the sum over COUNT rows j of values, each times weights[r * PART + j]
template <int ROWS, int COUNT, typename T>
void add_rows(const float* weights, const T* values, int64_t step, float* out, int64_t out_step, int64_t n) {
    for (int64_t d = 0; d < n; d += WIDTH) {
        floats sums[ROWS];
        for (int r = 0; r < ROWS; r++) sums[r] = load(out + r * out_step + d);
        for (int j = 0; j < COUNT; j++) {
            const floats x = load(values + j * step + d);
            for (int r = 0; r < ROWS; r++) sums[r] += weights[r * PART + j] * x;
        }
        for (int r = 0; r < ROWS; r++) store(out + r * out_step + d, sums[r]);
    }
}

// Calls f for two rows at a time, so that a loaded vector serves both.
template <typename F>
void in_pairs(int64_t rows, F f) {
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2) f.template operator()<2>(r);
    if (r < rows) f.template operator()<1>(r);
}

// What one query has of one part of the keys, besides the sum of values.
struct Sums {
    float largest, total;  // of its scores; of exp(score - largest)
};

// What a thread works with that takes parts of the keys, for all queries that share these.
struct Part {
    const Problem& p;
    int64_t rows;                        // query i of the group's head g is row g * L + i
    std::vector<float> queries, scores;  // rows x padded, rows x PART
    std::vector<char> whole;

    explicit Part(const Problem& p)
        : p(p),
          rows(p.group * p.L),
          queries(rows * p.padded),
          scores(rows * PART),
          whole(p.D == p.padded ? 0 : PART * p.padded * sizeof(float)) {}

    // Scores of all rows and `count` keys from `first` on.
    void score(int64_t kv_head, int64_t first, int64_t count) {
        for (int64_t r = 0; r < rows; r++) p.load_query(kv_head * p.group + r / p.L, r % p.L, &queries[r * p.padded]);
        dispatch(p.out.dtype, [&]<typename T>(T*) {
            int64_t step;
            const T* keys = whole_rows<T>(p.key, kv_head * p.S + first, count, step);
            in_pairs(rows, [&]<int ROWS>(int64_t r) {
                for (int64_t j = 0; j < count; j++) {
                    fetch(keys + (j + AHEAD) * step, p.D);
                    dots<ROWS>(&queries[r * p.padded], keys + j * step, p.padded, &scores[r * PART + j]);
                }
            });
        });
    }

    // A row's scores become weights exp(score - largest), and 0 from `seen` on. With seen = 0 the total is 0.
    Sums weigh(int64_t row, int64_t seen) {
        float* x = &scores[row * PART];
        std::fill(x + seen, x + PART, -INFINITY);
        floats most = splat(-FLT_MAX), sums = {};  // not -INFINITY, since -inf - -inf is NaN
        for (int64_t j = 0; j < seen; j += WIDTH) most = max(most, load(x + j));
        most = splat(max(most));
        for (int64_t j = 0; j < PART; j += WIDTH) {
            const floats weight = exp(load(x + j) - most);
            store(x + j, weight);
            sums += weight;
        }
        return {most[0], folded(sums)};
    }

    // Adds the values of `count` keys from `first` on, times their weights, to each row's place in `out`.
    void add_values(int64_t kv_head, int64_t first, int64_t count, float* out, int64_t out_step) {
        dispatch(p.out.dtype, [&]<typename T>(T*) {
            int64_t step;
            const T* values = whole_rows<T>(p.value, kv_head * p.S + first, count, step);
            in_pairs(rows, [&]<int ROWS>(int64_t r) {
                const float* weights = &scores[r * PART];
                float* to = out + r * out_step;
                int64_t j = 0;
                for (; j + 8 <= count; j += 8) {
                    for (int64_t k = 0; k < 8; k++) fetch(values + (j + k + AHEAD) * step, p.D);
                    add_rows<ROWS, 8>(weights + j, values + j * step, step, to, out_step, p.padded);
                }
                for (; j < count; j++) add_rows<ROWS, 1>(weights + j, values + j * step, step, to, out_step, p.padded);
            });
        });
    }

   private:
    // Rows that may be read up to `padded`: where D is less, a copy, filled up with zeros.
    template <typename T>
    const T* whole_rows(const StridedRows& rows, int64_t first, int64_t count, int64_t& step) {
        const T* from = rows.at<T>(first);
        step = rows.step();
        if (whole.empty()) return from;
        T* to = reinterpret_cast<T*>(whole.data());
        for (int64_t j = 0; j < count; j++) std::copy_n(from + j * step, p.D, to + j * p.padded);
        step = p.padded;
        return to;
    }
};

}  // namespace tiny_llm
