"""Print the bytes that a step with B requests reads: all weights once, and each request's cache, in 16-bit numbers."""

from tiny_llm.costs import model_cost
from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B

config = ModelConfig.from_hf(QWEN3_0_6B)
context = 1_000  # tokens in the cache of each request
weights = model_cost(config, 1, 1).bytes - model_cost(config, 1, 1, bytes_per_weight=0).bytes
cache = model_cost(config, 1, context, bytes_per_weight=0).bytes
operations = model_cost(config, 1, context).operations

print(f"Qwen3-0.6B, {context:,} tokens of context each; megabytes")
print("   B     weights + caches =    step   for each token   operations for each byte")
for B in (1, 2, 4, 8, 16, 32, 64, 128):
    step = weights + B * cache
    row = f"{weights / 1e6:9,.0f} + {B * cache / 1e6:6,.0f} = {step / 1e6:7,.0f}"
    print(f"{B:4} {row} {step / B / 1e6:16,.0f} {B * operations / step:26.1f}")
