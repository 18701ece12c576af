"""Compute the size of a KV cache from four numbers in a model's config.json."""

MODELS = {  # layers, H_q, H_kv, D
    "story": (6, 4, 2, 64),
    "Qwen2.5 0.5B": (24, 14, 2, 64),
    "Qwen3 0.6B": (28, 16, 8, 128),
    "Falcon 7B": (32, 71, 1, 64),
    "Llama 2 7B": (32, 32, 32, 128),
    "Llama 3.1 8B": (32, 32, 8, 128),
    "Llama 3.1 70B": (80, 64, 8, 128),
    "GPT-3 175B": (96, 96, 96, 128),
}
BYTES = 2  # per number in bfloat16


def per_token(layers: int, heads: int, D: int) -> int:
    """Return the bytes per token: one key and one value for each head of each layer."""
    return 2 * layers * heads * D * BYTES


print(f"{'':14}{'H_q':>5}{'H_kv':>5}{'KiB per token':>15}{'with H_q heads':>16}{'GiB for 8,192 tokens':>22}")
for name, (layers, H_q, H_kv, D) in MODELS.items():
    cost, full = per_token(layers, H_kv, D), per_token(layers, H_q, D)
    print(f"{name:14}{H_q:5}{H_kv:5}{cost / 2**10:15.1f}{full / 2**10:16.1f}{8192 * cost / 2**30:22.2f}")
