"""Count the operations and bytes of causal attention in a layer of Qwen3-0.6B, with all scores and in blocks."""

from tiny_llm.costs import Cost
from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B

CONFIG = ModelConfig.from_hf(QWEN3_0_6B)
H_q, H_kv, D = CONFIG.num_attention_heads, CONFIG.num_key_value_heads, CONFIG.head_dim
PAIR = 4 * D  # operations per pair of a query and a key: two products of D numbers each


def all_scores(L: int) -> Cost:
    """Return the cost of all pairs, hidden or not. Each score makes six trips to or from memory, 4 bytes each."""
    return Cost(PAIR * H_q * L * L, 24 * H_q * L * L + 2 * 2 * (H_q + H_kv) * L * D)


def in_blocks(L: int, queries: int = 64) -> Cost:
    """Return the cost without hidden blocks. Each block of queries reads the keys and values that its queries see."""
    seen = sum(range(queries, L + 1, queries))  # keys read by all blocks together, if L is a multiple of `queries`
    return Cost(PAIR * H_q * queries * seen, H_q * seen * 2 * D * 2 + 2 * 2 * H_q * L * D)


print(f"{'':7}{'scores,':>11}{'all scores':>24}{'blocks of 64':>29}")
print(f"{'L = S':>7}{'float32':>11}{'GFLOP':>10}{'GB':>7}{'FLOP/B':>8}{'GFLOP':>14}{'GB':>7}{'FLOP/B':>8}")
for L in (512, 4096, 32768):
    row = f"{L:7,}{H_q * L * L * 4 / 2**20:7,.0f} MiB"
    for cost in (all_scores(L), in_blocks(L)):
        row += f"{cost.operations / 1e9:10,.1f}{cost.bytes / 1e9:7,.2f}{cost.intensity:8.1f}    "
    print(row.rstrip())
