"""Print the highest speed of Qwen3-0.6B on a machine with 90 GB/s and 1,100 GFLOP/s, and what limits the speed."""

from tiny_llm.costs import Cost, Machine, model_cost
from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B

CONFIG = ModelConfig.from_hf(QWEN3_0_6B)
MACHINE = Machine(peak=1100e9, bandwidth=90e9)


def step(B: int, S: int, bits: float) -> Cost:
    """Return the cost of one token for each of B requests, which share weights, but not keys and values."""
    one = model_cost(CONFIG, 1, S, bits / 8)
    cache = S * (model_cost(CONFIG, 1, 2).bytes - model_cost(CONFIG, 1, 1).bytes)
    return Cost(B * one.operations, one.bytes + (B - 1) * cache)


def row(name: str, tokens: int, cost: Cost) -> None:
    waits_for = "memory" if cost.intensity < MACHINE.ridge else "arithmetic"
    print(f"{name:26}{tokens / MACHINE.seconds(cost):8,.0f} tok/s{cost.intensity:9.1f} FLOP/B   {waits_for}")


print(f"ridge: {MACHINE.ridge:.1f} FLOP/B")
for bits in (16, 4.5):
    print(f"\nweights of {bits} bits")
    for S in (1, 513, 4097):
        row(f"decode, S = {S:,}", 1, step(1, S, bits))
    for B in (4, 16, 64):
        row(f"{B} requests, S = 513", B, step(B, 513, bits))
    for L in (8, 32, 512):
        row(f"prefill, L = {L}", L, model_cost(CONFIG, L, L, bits / 8))
