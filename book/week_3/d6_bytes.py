"""Print the cost of a step that checks k guesses per request: bytes, operations, and operations per byte."""

from tiny_llm.costs import model_cost
from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B

config = ModelConfig.from_hf(QWEN3_0_6B)
context, ridge = 1_000, 12.2  # tokens in the cache of each request; FLOP/B of week 2's example machine
token = model_cost(config, 1, context)
weights = token.bytes - model_cost(config, 1, context, bytes_per_weight=0).bytes

print(f"Qwen3-0.6B, 16-bit weights, {context:,} tokens of context each; memory is the limit below {ridge} FLOP/B")
print("requests   guesses   rows      MB   million operations   FLOP/B   limit")
for B in (1, 4, 16):
    for k in (0, 1, 4, 8):
        rows = B * (k + 1)
        moved = weights + B * (token.bytes - weights)  # the keys and values are read once for all rows of a request
        operations = rows * token.operations
        limit = "memory" if operations / moved < ridge else "arithmetic"
        print(f"{B:8} {k:9} {rows:6} {moved / 1e6:7,.0f} {operations / 1e6:20,.0f} {operations / moved:8.1f}   {limit}")
