"""Turn a text into tokens, vectors and logits, and print the five likeliest next tokens."""

import mlx.core as mx

from tiny_llm.kv_cache import NoCache
from tiny_llm.models import load

NAME = "story"  # or "Qwen/Qwen3-0.6B", which the first run downloads (1.5 GB)
TEXT = "Mia had a red key. She put the key in the"

model, tokenizer = load(NAME)
tokens = mx.array([tokenizer.encode(TEXT)])  # B, L
print("tokens ", tokens.shape, "|".join(tokenizer.decode([token]) for token in tokens[0].tolist()))

vectors = model.embed_tokens(tokens)  # B, L, E
print("vectors", vectors.shape, vectors.dtype)

hidden = model.hidden(tokens, NoCache(len(model.layers)))  # B, L, E
print("hidden ", hidden.shape, hidden.dtype)

logits = model.logits(hidden[:, -1])  # B, V: for the last token only
print("logits ", logits.shape, logits.dtype)

chances = mx.softmax(logits[0].astype(mx.float32))
for token in mx.argsort(-chances)[:5].tolist():
    print(f"  {chances[token].item():6.1%}  {tokenizer.decode([token])!r}")
