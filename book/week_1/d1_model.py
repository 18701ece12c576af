"""Let `story` answer two prompts, each once with your attention and once without attention."""

import mlx.core as mx

from tiny_llm.attention import scaled_dot_product_attention_simple
from tiny_llm_ref.kv_cache import Attention, NoCache  # your own version is complete on day 5
from tiny_llm_ref.models import load

model, tokenizer = load("story", mx.float32)
shapes: list[tuple[int, ...]] = []


def yours(query: mx.array, key: mx.array, value: mx.array, scale: float, mask: str) -> mx.array:
    """Call your function of task 1. Four query heads share two key/value heads, and no token looks ahead (day 3)."""
    shapes.append(query.shape)
    key, value = mx.repeat(key, 2, axis=1), mx.repeat(value, 2, axis=1)
    position = mx.arange(query.shape[2])
    ahead = mx.where(position > position[:, None], -mx.inf, 0.0)  # L, L
    return scaled_dot_product_attention_simple(query, key, value, scale, ahead)


def nothing(query: mx.array, *others: object) -> mx.array:
    return mx.zeros_like(query)


def write(text: str, attention: Attention, length: int) -> str:
    chat = [{"role": "user", "content": text}]
    tokens = tokenizer.apply_chat_template(chat, add_generation_prompt=True)
    start = len(tokens)
    while len(tokens) < start + length and tokens[-1] not in tokenizer.eos_token_ids:
        logits = model(mx.array([tokens]), NoCache(len(model.layers), attention))  # 1, L, V
        tokens.append(mx.argmax(logits[0, -1]).item())
    return tokenizer.decode(tokens[start:], skip_special_tokens=True).strip()


STORY = "Mia had a red key. She hid the key in the old box. Where is the key?"
for prompt in ("Tell me a short story.", STORY):
    print("prompt: ", prompt)
    print("with:   ", repr(write(prompt, yours, 24)))
    print("without:", repr(write(prompt, nothing, 24)), "\n")

shapes.clear()
write("Tell me a short story.", yours, 3)
print(f"three tokens, {len(shapes)} calls, queries of")
for shape in dict.fromkeys(shapes):
    print(f"  {shape} in each of {shapes.count(shape)} layers")
