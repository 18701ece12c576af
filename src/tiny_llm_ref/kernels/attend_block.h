// A block of FlashAttention. attention.cpp uses it when there are many queries, paged_attention.cpp for the queries of
// prompts.
#pragma once
#include "attention/attention.h"

namespace tiny_llm {

// Computes the attention of one block of queries to all keys that they see, one block of keys at a time.
inline void attend_block(const Problem& p, int64_t head, int64_t first_query, int64_t count, Block& block) {
    block.load_queries(p, head, first_query, count);
    float *scores = block.scores.data(), *out = block.out.data();
    float *largest = block.largest.data(), *total = block.total.data();
    // task w2d7.2 begin
    const int64_t seen = p.seen(first_query + count - 1);
    for (int64_t first = 0; first < seen; first += KEYS) {
        const int64_t keys = std::min(KEYS, seen - first);
        block.load_keys(p, head, first, keys);
        std::fill_n(scores, KEYS * QUERIES, 0.f);
        multiply_add(block.keys.data(), p.padded, 1, block.queries.data(), scores, KEYS, p.D);
        if (first + keys > p.seen(first_query))  // not all queries see all of these keys
            for (int64_t j = 0; j < keys; j++)
                for (int64_t i = 0; i < count; i++)
                    if (first + j >= p.seen(first_query + i)) scores[j * QUERIES + i] = -INFINITY;

        for (int64_t i = 0; i < QUERIES; i += WIDTH) {
            floats most = load(largest + i);
            for (int64_t j = 0; j < keys; j++) most = max(most, load(scores + j * QUERIES + i));
            const floats kept = exp(load(largest + i) - most);
            floats sums = load(total + i) * kept;
            for (int64_t j = 0; j < keys; j++) {
                const floats weight = exp(load(scores + j * QUERIES + i) - most);
                store(scores + j * QUERIES + i, weight);
                sums += weight;
            }
            for (int64_t d = 0; d < p.D; d++) store(out + d * QUERIES + i, load(out + d * QUERIES + i) * kept);
            store(largest + i, most);
            store(total + i, sums);
        }
        multiply_add(block.values.data(), 1, p.padded, scores, out, p.padded, keys);
    }
    for (int64_t d = 0; d < p.D; d++)
        for (int64_t i = 0; i < QUERIES; i += WIDTH)
            store(out + d * QUERIES + i, load(out + d * QUERIES + i) / load(total + i));
    // task w2d7.2 end
    block.store_out(p, head, first_query, count);
}

}  // namespace tiny_llm
