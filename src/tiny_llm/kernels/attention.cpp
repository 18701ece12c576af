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
    // Week 2 Day 7 Task 3: what belongs here is yours to write.
    // Chapter: FlashAttention.
    // Test: ./course test w2d7.3
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
