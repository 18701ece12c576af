"""Count the parameters of attention and of the MLP in one block, from the sizes in each model's config.json."""

MODELS = {  # E, H_q, H_kv, D, I
    "story": (256, 4, 2, 64, 768),
    "Qwen2.5 0.5B": (896, 14, 2, 64, 4864),
    "Qwen3 0.6B": (1024, 16, 8, 128, 3072),
    "Llama 2 7B": (4096, 32, 32, 128, 11008),
    "Llama 3.1 8B": (4096, 32, 8, 128, 14336),
    "Qwen3 32B": (5120, 64, 8, 128, 25600),
}
print(f"{'':14}{'attention':>12}{'MLP':>14}{'share of the MLP':>18}{'I / E':>8}")
for name, (E, H_q, H_kv, D, I) in MODELS.items():
    attention = 2 * E * H_q * D + 2 * E * H_kv * D  # q and o, k and v
    mlp = 3 * E * I  # gate, up, down
    print(f"{name:14}{attention:12,}{mlp:14,}{100 * mlp / (attention + mlp):16.0f} %{I / E:8.2f}")
