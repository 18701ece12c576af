"""Compare the logits of `story` with week 1's attention and with your kernels, for a prompt and then token by token."""

import mlx.core as mx

from tiny_llm.attention import scaled_dot_product_attention_grouped
from tiny_llm.generate import next_logits
from tiny_llm.kernels.attention import flash_attention
from tiny_llm.kv_cache import KVCache
from tiny_llm.models import load

model, tokenizer = load("story", dtype=mx.float32)
question = "Mia had a red key. She hid the key in the old box. Then she went home. Where is the key?"
prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
caches = [
    KVCache(len(model.layers), attention=attention)
    for attention in (scaled_dot_product_attention_grouped, flash_attention)
]

fed, answer, apart = prompt, [], 0.0
while len(answer) < 60 and (not answer or answer[-1] not in model.config.eos_token_ids):
    plain, fast = (next_logits(model, mx.array([fed]), cache) for cache in caches)
    apart = max(apart, mx.abs(plain - fast).max().item())
    answer.append(mx.argmax(plain).item())
    fed = answer[-1:]
    if mx.argmax(fast).item() != answer[-1]:
        print("another token")
print(f"{len(prompt)} tokens at once, then {len(answer) - 1} alone; scores within 1e-3: {apart < 1e-3}")
print(tokenizer.decode(answer))
