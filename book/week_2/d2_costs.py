"""Print the operations, bytes and FLOP/B of four passes through two models, from `model_cost` (task 1)."""

from tiny_llm.costs import model_cost
from tiny_llm.models import resolve
from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B

MODELS = {"story": ModelConfig.from_pretrained(resolve("story")), "Qwen3-0.6B": ModelConfig.from_hf(QWEN3_0_6B)}
PASSES = {"decode": (1, 1), "decode, late": (1, 1000), "chunk": (16, 512), "prefill": (512, 512)}

for name, config in MODELS.items():
    print(
        f"{name:13}{'L':>4}{'S':>5}{'operations':>17}{'at 16 bits, B':>15}{'FLOP/B':>8}{'at 4.5, B':>13}{'FLOP/B':>8}"
    )
    for what, (L, S) in PASSES.items():
        full, quantised = model_cost(config, L, S), model_cost(config, L, S, bytes_per_weight=4.5 / 8)
        row = f"{what:13}{L:4}{S:5}{full.operations:17,.0f}{full.bytes:15,.0f}{full.intensity:8.1f}"
        print(f"{row}{quantised.bytes:13,.0f}{quantised.intensity:8.1f}")
