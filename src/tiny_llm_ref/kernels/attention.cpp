// FlashAttention: softmax(Q K^T * scale) V, whose L x S scores are never in memory as a whole.
#include "attention.h"

namespace tiny_llm {
namespace {

// One block of queries against all keys that they see, a block of keys at a time.
void attend_block(const Problem& p, int64_t head, int64_t first_query, int64_t count, Block& block) {
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

// Few queries: the keys of each head are shared out, and what was found for a query's parts is joined.
void attend_split_kv(const Problem& p, const Threads& threads) {
    const int64_t rows = p.group * p.L, parts = (p.S + PART - 1) / PART, all_rows = p.kv_heads * rows;
    std::vector<Sums> found(all_rows * parts);            // of row r and part i: r * parts + i
    std::vector<float> out(all_rows * parts * p.padded);  // likewise, padded numbers each
    // task w2d7.3 begin
    threads(p.kv_heads * parts, 1, [&](int64_t begin, int64_t end) {
        Part part(p);
        for (int64_t item = begin; item < end; item++) {
            const int64_t head = item / parts, i = item % parts, first = i * PART;
            const int64_t keys = std::min(PART, p.S - first), place = head * rows * parts + i;
            part.score(head, first, keys);
            for (int64_t r = 0; r < rows; r++) {
                const int64_t seen = std::clamp(p.seen(r % p.L) - first, int64_t(0), keys);
                found[place + r * parts] = part.weigh(r, seen);
            }
            part.add_values(head, first, keys, &out[place * p.padded], parts * p.padded);
        }
    });
    for (int64_t row = 0; row < all_rows; row++) {
        const Sums* of_part = &found[row * parts];
        std::vector<float> joined(p.padded);
        float most = -INFINITY, total = 0;
        for (int64_t i = 0; i < parts; i++) most = std::fmax(most, of_part[i].largest);
        for (int64_t i = 0; i < parts; i++) {
            const float kept = std::exp(of_part[i].largest - most);
            total += of_part[i].total * kept;
            for (int64_t d = 0; d < p.D; d++) joined[d] += out[(row * parts + i) * p.padded + d] * kept;
        }
        for (int64_t d = 0; d < p.D; d++) joined[d] /= total;
        p.store_result(row / p.L, row % p.L, joined.data());
    }
    // task w2d7.3 end
}

}  // namespace
}  // namespace tiny_llm

using namespace tiny_llm;

KERNEL(attend_blocks, AttentionArguments) {
    if (call.query.size() == 0) return;
    const Problem p(call);
    const int64_t blocks = (p.L + QUERIES - 1) / QUERIES;
    call.threads(p.query_heads * blocks, 1, [&](int64_t begin, int64_t end) {
        Block block(p.padded);
        for (int64_t i = begin; i < end; i++) {
            const int64_t first = i % blocks * QUERIES;
            attend_block(p, i / blocks, first, std::min(QUERIES, p.L - first), block);
        }
    });
}

KERNEL(attend_split_kv, AttentionArguments) {
    if (call.query.size() == 0) return;
    attend_split_kv(Problem(call), call.threads);
}
