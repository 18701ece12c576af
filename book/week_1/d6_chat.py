"""Print a chat prompt as the model reads it, and the answer token by token."""

import mlx.core as mx

from tiny_llm.generate import generate_simple
from tiny_llm.models import load
from tiny_llm.sampler import greedy

QUESTION = "Mia had a red key. She hid the key in the old box. Where is the key?"

model, tokenizer = load("story", mx.float32)
messages = [{"role": "user", "content": QUESTION}]
print(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False), end="")
print("--- end of the prompt")

tokens = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
ends = model.config.eos_token_ids
for token in generate_simple(model, tokens, greedy, 20, ends):
    print(f"{len(tokens)} tokens in, token {token:4} out: {tokenizer.decode([token])!r}")
    tokens = [*tokens, token]

last = greedy(model(mx.array([tokens]))[:, -1]).item()  # the loop did not yield the end-of-sequence token
print(f"{len(tokens)} tokens in, token {last:4} out: {tokenizer.decode([last])!r}, the end: {last in ends}")
