"""Attention of a causal prompt in one layer of Qwen3-0.6B: operations and bytes, with all scores and in blocks."""

from tiny_llm.costs import Cost
from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B

CONFIG = ModelConfig.from_hf(QWEN3_0_6B)
H_q, H_kv, D = CONFIG.num_attention_heads, CONFIG.num_key_value_heads, CONFIG.head_dim
PAIR = 4 * D  # operations of a query and a key: two products of D numbers


def all_scores(L: int) -> Cost:
    """Every pair, hidden ones, too; each score is written, masked, turned into a weight, and read: 6 x 4 bytes."""
    return Cost(PAIR * H_q * L * L, 24 * H_q * L * L + 2 * 2 * (H_q + H_kv) * L * D)


def in_blocks(L: int, queries: int = 64) -> Cost:
    """Without what is behind the diagonal. For each block of queries, the keys and values that it sees are read."""
    seen = sum(range(queries, L + 1, queries))  # keys of all blocks of queries together, L being a multiple
    return Cost(PAIR * H_q * queries * seen, H_q * seen * 2 * D * 2 + 2 * 2 * H_q * L * D)


print(f"{'':7}{'scores,':>11}{'all scores':>24}{'blocks of 64':>29}")
print(f"{'L = S':>7}{'float32':>11}{'GFLOP':>10}{'GB':>7}{'FLOP/B':>8}{'GFLOP':>14}{'GB':>7}{'FLOP/B':>8}")
for L in (512, 4096, 32768):
    row = f"{L:7,}{H_q * L * L * 4 / 2**20:7,.0f} MiB"
    for cost in (all_scores(L), in_blocks(L)):
        row += f"{cost.operations / 1e9:10,.1f}{cost.bytes / 1e9:7,.2f}{cost.intensity:8.1f}    "
    print(row.rstrip())
