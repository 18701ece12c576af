"""Keep the cache between three turns of a chat, and print how many tokens of each prompt still need computing."""

import mlx.core as mx

from tiny_llm.generate import generate, next_logits
from tiny_llm.kv_cache import KVCache
from tiny_llm.models import load
from tiny_llm.sampler import greedy

model, tokenizer = load("story", mx.float32)
cache, stored = KVCache(len(model.layers)), []  # `stored`: the tokens whose keys and values are in the cache


def reply(prompt: list[int]) -> list[int]:
    """Return the greedy answer. Of the prompt, compute only the tokens that are not in the cache, but at least one."""
    global stored
    common = 0
    while common < min(len(stored), len(prompt) - 1) and stored[common] == prompt[common]:
        common += 1
    cache.trim(len(stored) - common)
    tokens, new = prompt, prompt[common:]
    print(f"prompt {len(prompt):3}: {common:3} in the cache, {len(new):2} to run", end="; ")
    while len(tokens) < len(prompt) + 40:
        token = greedy(next_logits(model, mx.array([new]), cache)).item()
        if token in model.config.eos_token_ids:
            break
        new = [token]
        tokens = tokens + new
    stored = tokens[: cache.offset]
    return tokens[len(prompt) :]


chat = []
for question in (
    "Mia had a red key. She hid the key in the old box. Where is the key?",
    "Tom had a blue ball. He put the ball under the bed. Where is the ball?",
    "Tell me a short story.",
):
    chat.append({"role": "user", "content": question})
    prompt = list(tokenizer.apply_chat_template(chat, add_generation_prompt=True))
    answer = reply(prompt)
    anew = list(generate(model, prompt, greedy, 40, model.config.eos_token_ids))
    print(f"{len(answer):2} new; as with an empty cache: {answer == anew}")
    chat.append({"role": "assistant", "content": tokenizer.decode(answer, skip_special_tokens=True)})
