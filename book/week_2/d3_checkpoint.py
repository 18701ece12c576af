"""Compare a model quantised by mlx-lm with a model quantised by `quantize_model`, bit for bit."""

import tempfile
from contextlib import redirect_stdout
from io import StringIO

import mlx.core as mx
import mlx_lm

from tiny_llm.models import load, load_quantized
from tiny_llm.quantize import quantize_model
from tiny_llm_models import bundled

model, _ = load("story")
quantize_model(model, group_size=64, bits=4)

with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
    path = f"{folder}/story-4bit"
    mlx_lm.convert(str(bundled("story")), path, quantize=True, q_group_size=64, q_bits=4)
    loaded, _ = load_quantized(path)
    tokens = mx.array([[5, 60, 700]])
    same_logits = mx.array_equal(model(tokens), loaded(tokens)).item()

layers = [(a.mlp.up_proj, b.mlp.up_proj) for a, b in zip(model.layers, loaded.layers, strict=True)]
layers.append((model.embed_tokens, loaded.embed_tokens))
for part in ("packed", "scales", "biases"):
    print(f"{part:7} equal: {all(mx.array_equal(getattr(a, part), getattr(b, part)).item() for a, b in layers)}")
print(f"logits  equal: {same_logits}")
