"""Print the memory that three implementations of attention take in addition to their inputs."""

import mlx.core as mx

from tiny_llm.attention import scaled_dot_product_attention_grouped
from tiny_llm.kernels.attention import attention_online, flash_attention

H_q, H_kv, D = 4, 2, 64  # of `story`
WAYS = {
    "week 1": lambda *arrays: scaled_dot_product_attention_grouped(*arrays, None, "causal"),
    "blocks of 64": lambda *arrays: attention_online(*arrays, None, "causal", 64),
    "kernel": lambda *arrays: flash_attention(*arrays, None, "causal"),
}

print(f"{'L = S':>6}{'scores':>10}", *(f"{name:>14}" for name in WAYS))
for S in (256, 512, 1024, 2048):
    query, key, value = (mx.random.normal((1, heads, S, D)) for heads in (H_q, H_kv, H_kv))
    mx.eval(query, key, value)
    row = f"{S:6}{H_q * S * S * 4 / 2**20:6.1f} MiB"
    for attend in WAYS.values():
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(attend(query, key, value))
        row += f"{(mx.get_peak_memory() - before) / 2**20:11.1f} MiB"
    print(row)
