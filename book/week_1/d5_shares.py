"""Print how the parameters of four models are divided among embedding table, attention, MLPs and norms."""

import math

from tiny_llm.models import resolve
from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes


def sizes(kind: str, V: int, E: int, I: int, layers: int, H_q: int, H_kv: int, D: int, tied: bool) -> ModelConfig:
    """Return a configuration with the settings that determine the number of parameters."""
    fields = {"model_type": kind, "vocab_size": V, "hidden_size": E, "intermediate_size": I, "head_dim": D}
    fields |= {"num_hidden_layers": layers, "num_attention_heads": H_q, "num_key_value_heads": H_kv}
    fields |= {"tie_word_embeddings": tied, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6}
    return ModelConfig.from_hf(fields)


MODELS = {
    "story": ModelConfig.from_pretrained(resolve("story")),
    "Qwen2.5 0.5B": sizes("qwen2", 151936, 896, 4864, 24, 14, 2, 64, True),
    "Qwen3 0.6B": sizes("qwen3", 151936, 1024, 3072, 28, 16, 8, 128, True),
    "Qwen3 8B": sizes("qwen3", 151936, 4096, 12288, 36, 32, 8, 128, False),
}
PARTS = {"table": ("embed_tokens", "lm_head"), "attention": ("self_attn",), "MLP": ("mlp",), "norms": ("norm",)}

print(f"{'':14}{'parameters':>15}" + "".join(f"{part:>11}" for part in PARTS))
for name, config in MODELS.items():
    shapes = {name: math.prod(shape) for name, shape in expected_shapes(config).items()}
    total, shares, left = sum(shapes.values()), "", dict(shapes)
    for words in PARTS.values():
        found = [weight for weight in left if any(word in weight for word in words)]
        shares += f"{100 * sum(left.pop(weight) for weight in found) / total:9.2f} %"
    print(f"{name:14}{total:15,}{shares}")
