// Attention of a few queries, as in decoding (split KV): threads share the keys, part by part. Given.
#pragma once
#include "attention.h"

namespace tiny_llm {

template <int HALF, int... LANES>
floats swapped(floats x, std::integer_sequence<int, LANES...>) {
    return __builtin_shufflevector(x, x, (LANES ^ HALF)...);
}

// Returns the sum of a vector's numbers, in log2(WIDTH) additions.
template <int HALF = WIDTH / 2>
float folded(floats x) {
    if constexpr (HALF == 0)
        return x[0];
    else
        return folded<HALF / 2>(x + swapped<HALF>(x, std::make_integer_sequence<int, WIDTH>()));
}

// Returns sums of pairs of lanes that are HALF apart: HALF sums from a, then HALF sums from b, and so on.
template <int HALF, int... LANES>
floats merged(floats a, floats b, std::integer_sequence<int, LANES...>) {
    return __builtin_shufflevector(a, b, (LANES & HALF ? LANES + WIDTH : LANES)...) +
           __builtin_shufflevector(a, b, (LANES & HALF ? (LANES ^ HALF) + WIDTH : LANES ^ HALF)...);
}

// Stores the sums of four vectors' numbers, one after the other.
inline void store_folded(float* to, const floats* x) {
    constexpr auto lanes = std::make_integer_sequence<int, WIDTH>();
    floats sums = merged<2>(merged<1>(x[0], x[1], lanes), merged<1>(x[2], x[3], lanes), lanes);
    if constexpr (WIDTH > 8) sums += swapped<WIDTH / 2>(sums, lanes);
    if constexpr (WIDTH > 4) sums += swapped<4>(sums, lanes);
    std::memcpy(to, &sums, 4 * sizeof(float));
}

// Prefetches rows that will be read soon, so that the rows have arrived from memory by then.
template <int COUNT, typename T>
void fetch(const T* rows, int64_t step, int64_t n) {
    for (int j = 0; j < COUNT; j++)
        for (int64_t i = 0; i < n; i += 64 / sizeof(T)) __builtin_prefetch(rows + j * step + i);
}

// to[r * PART + j] = row r of a times row j of b, for COUNT rows of b, where COUNT is 4 or 1
template <int ROWS, int COUNT, typename T>
void dots(const float* a, const T* b, int64_t step, int64_t n, float* to) {
    floats sums[ROWS][COUNT] = {};
    for (int64_t d = 0; d < n; d += WIDTH)
        for (int j = 0; j < COUNT; j++) {
            const floats x = load(b + j * step + d);
            for (int r = 0; r < ROWS; r++) sums[r][j] += load(a + r * n + d) * x;
        }
    for (int r = 0; r < ROWS; r++) {
        if constexpr (COUNT == 4)
            store_folded(to + r * PART, sums[r]);
        else
            to[r * PART] = folded(sums[r][0]);
    }
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

// Calls f for two rows at a time, so that each loaded vector is used for both rows.
template <typename F>
void in_pairs(int64_t rows, F f) {
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2) f.template operator()<2>(r);
    if (r < rows) f.template operator()<1>(r);
}

// The results of one query for one part of the keys, except for the sum of values.
struct Sums {
    float largest, total;  // the largest score; the sum of exp(score - largest)
};

// The state of a thread for a few queries. These queries share the keys, which the thread takes part by part.
struct DecodeAttention {
    const int64_t D, padded;
    int64_t rows, keys = 0;              // queries; keys of the part so far
    std::vector<float> queries, scores;  // rows x padded, rows x PART
    std::vector<char> whole;

    DecodeAttention(int64_t D, int64_t padded, int64_t rows)
        : D(D),
          padded(padded),
          rows(rows),
          queries(rows * padded),
          scores(rows * PART),
          whole(D == padded ? 0 : PART * padded * sizeof(float)) {}

    // Computes the scores of all rows and of `count` more keys, from key j onwards. ahead: a row that will be read
    // soon.
    template <typename T>
    [[gnu::noinline]] void score(const T* key, int64_t step, int64_t j, int64_t count, const T* ahead) {
        const int64_t apart = step;
        key = whole_rows(key, count, step), keys = j + count;
        in_pairs(rows, [&]<int ROWS>(int64_t r) {
            float *query = &queries[r * padded], *to = &scores[r * PART + j];
            int64_t k = 0;
            for (; k + 4 <= count; k += 4) {
                if (r == 0) fetch<4>(ahead + k * apart, apart, D);
                dots<ROWS, 4>(query, key + k * step, step, padded, to + k);
            }
            for (; k < count; k++) dots<ROWS, 1>(query, key + k * step, step, padded, to + k);
        });
    }

    // Turns a row's scores into weights exp(score - largest). The weights from `seen` on are 0. If seen is 0, the total
    // is 0.
    Sums weigh(int64_t row, int64_t seen) {
        float* x = &scores[row * PART];
        const int64_t end = (std::max(keys, seen) + WIDTH - 1) / WIDTH * WIDTH;
        std::fill(x + seen, x + end, -INFINITY);
        floats most = splat(-FLT_MAX), sums = {};  // not -INFINITY, since -inf - -inf is NaN
        for (int64_t j = 0; j < seen; j += WIDTH) most = max(most, load(x + j));
        most = splat(max(most));
        for (int64_t j = 0; j < end; j += WIDTH) {
            const floats weight = exp(load(x + j) - most);
            store(x + j, weight);
            sums += weight;
        }
        return {most[0], folded(sums)};
    }

    // Adds the values of `count` keys from key j onwards, times their weights, to each row's place in `out`.
    template <typename T>
    [[gnu::noinline]] void add_values(const T* value, int64_t step, int64_t j, int64_t count, const T* ahead,
                                      float* out, int64_t out_step) {
        const int64_t apart = step;
        value = whole_rows(value, count, step);
        in_pairs(rows, [&]<int ROWS>(int64_t r) {
            const float* weights = &scores[r * PART + j];
            float* to = out + r * out_step;
            int64_t k = 0;
            for (; k + 8 <= count; k += 8) {
                if (r == 0) fetch<8>(ahead + k * apart, apart, D);
                add_rows<ROWS, 8>(weights + k, value + k * step, step, to, out_step, padded);
            }
            for (; k < count; k++) add_rows<ROWS, 1>(weights + k, value + k * step, step, to, out_step, padded);
        });
    }

   private:
    // Returns rows that may be read up to element `padded`. If D is less, the rows are copies, padded with zeros.
    template <typename T>
    const T* whole_rows(const T* from, int64_t count, int64_t& step) {
        if (whole.empty()) return from;
        T* to = reinterpret_cast<T*>(whole.data());
        for (int64_t j = 0; j < count; j++) std::copy_n(from + j * step, D, to + j * padded);
        step = padded;
        return to;
    }
};

// The state of a thread for all queries that share a head of keys: query i of the group's head g is row g * L + i.
struct Part : DecodeAttention {
    const Problem& p;

    explicit Part(const Problem& p) : DecodeAttention(p.D, p.padded, p.group * p.L), p(p) {}

    // Computes the scores of all rows and `count` keys from `first` onwards.
    void score(int64_t kv_head, int64_t first, int64_t count) {
        for (int64_t r = 0; r < rows; r++) p.load_query(kv_head * p.group + r / p.L, r % p.L, &queries[r * padded]);
        in_pieces(p.key, kv_head, first, count, [&](auto* key, int64_t j, int64_t some, auto* ahead) {
            DecodeAttention::score(key, p.key.step(), j, some, ahead);
        });
    }

    // Adds the values of `count` keys from `first` onwards, times their weights, to each row's place in `out`.
    void add_values(int64_t kv_head, int64_t first, int64_t count, float* out, int64_t out_step) {
        in_pieces(p.value, kv_head, first, count, [&](auto* value, int64_t j, int64_t some, auto* ahead) {
            DecodeAttention::add_values(value, p.value.step(), j, some, ahead, out, out_step);
        });
    }

   private:
    // Calls f for small pieces of the rows, so that prefetched rows arrive bit by bit.
    template <typename F>
    void in_pieces(const StridedRows& rows, int64_t kv_head, int64_t first, int64_t count, F f) {
        dispatch_float(p.out.dtype, [&]<typename T>(T*) {
            const T* from = rows.at<T>(kv_head * p.S + first);
            for (int64_t j = 0; j < count; j += PIECE)
                f(from + j * rows.step(), j, std::min(PIECE, count - j), from + (j + AHEAD) * rows.step());
        });
    }
};

}  // namespace tiny_llm
