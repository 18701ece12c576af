"""Compare the memory for a KV cache with the memory for the weights, both with 16 bits per number."""

MODELS = {  # layers, H_kv, D, parameters
    "story": (6, 2, 64, 5_771_264),
    "Qwen3-0.6B": (28, 8, 128, 596_049_920),
    "Qwen3-1.7B": (28, 8, 128, 1_720_574_976),
    "Qwen3-4B": (36, 8, 128, 4_022_468_096),
    "Qwen3-8B": (36, 8, 128, 8_190_735_360),
    "Qwen3-14B": (40, 8, 128, 14_768_307_200),
    "Qwen3-32B": (64, 8, 128, 32_762_123_264),
}
BYTES = 2  # per number

print("              KiB a token   GiB of weights   GiB for 40,960 tokens   as heavy as the weights")
for name, (layers, H_kv, D, parameters) in MODELS.items():
    token, weights = 2 * layers * H_kv * D * BYTES, parameters * BYTES
    row = f"{token / 2**10:11.1f} {weights / 2**30:16.2f} {40_960 * token / 2**30:23.2f}"
    print(f"{name:14}{row} {weights / token:17,.0f} tokens")
