"""Count MLX's operations for one token of `story` while day 5's kernels replace week 1's layers one by one."""

from collections import Counter
from io import StringIO

import mlx.core as mx

from tiny_llm.kv_cache import KVCache
from tiny_llm.models import load
from tiny_llm.optimise import optimise
from tiny_llm.qwen2 import CausalLM

VIEWS = {"Broadcast", "ExpandDims", "Flatten", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unflatten"}


def operations(model: CausalLM, tokens: list[int]) -> Counter[str]:
    """Count the operations that MLX records for the last token, except for views."""
    cache, graph = KVCache(len(model.layers)), StringIO()
    mx.eval(model(mx.array([tokens[:-1]]), cache))
    mx.export_to_dot(graph, model(mx.array([tokens[-1:]]), cache))
    names = [line.split('"')[1] for line in graph.getvalue().splitlines() if "label" in line]
    return Counter(name for name in names if name not in VIEWS)


model, tokenizer = load("story")
precise, _ = load("story", mx.float32)  # in float32, so that kernels change logits only by rounding
tokens = tokenizer.encode("Mia had a red key.")
expected = precise(mx.array([tokens]))

print("                     operations   products   kernels   same logits")
for kernels in ([], ["rms_norm"], ["rope"], ["swiglu"]):  # each kernel stays in the model for the next rows
    optimise(model, kernels)
    optimise(precise, kernels)
    counts = operations(model, tokens)
    same = mx.allclose(precise(mx.array([tokens])), expected, atol=1e-3).item()
    name = "".join(kernels) or "last week's layers"
    print(f"{name:20}{counts.total():11}{counts['Matmul']:11}{counts['Kernel']:10}{same!s:>14}")
