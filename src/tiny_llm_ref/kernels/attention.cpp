// FlashAttention: softmax(Q K^T * scale) V, whose L x S scores are never in memory as a whole.
#include "attend_block.h"

namespace tiny_llm {
namespace {

// Computes attention for few queries: threads share the keys of each head in parts, and then the results for all parts
// are joined, query by query.
void attend_split_kv(const Problem& p, const Threads& threads) {
    const int64_t rows = p.group * p.L, parts = (p.S + PART - 1) / PART, all_rows = p.kv_heads * rows;
    std::vector<Sums> found(all_rows * parts);            // row r and part i have index r * parts + i
    std::vector<float> out(all_rows * parts * p.padded);  // the same order, `padded` numbers each
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
