"""Compare the logits of a text that is fed whole, in pieces, and after a wrong guess has been trimmed."""

import mlx.core as mx

from tiny_llm.kv_cache import KVCache
from tiny_llm.models import load

model, tokenizer = load("story", mx.float32)
text = tokenizer.encode("Mia had a red key. She hid the key in the old box. Where is the key?")
at_once = model(mx.array([text]))[0]  # L, V


def feed(cache: KVCache, tokens: list[int]) -> mx.array:
    """Return the logits after each of these tokens, which follow the tokens in the cache."""
    return model(mx.array([tokens]), cache)[0]


def same(logits: mx.array) -> bool:
    """Tell whether these logits equal the last rows of the whole text's logits, except for rounding."""
    return mx.allclose(logits, at_once[-len(logits) :], atol=1e-3).item()


L = len(text)
print(f"{L} tokens")
for size in (L, 7, 1):
    cache = KVCache(len(model.layers))
    pieces = [text[start : start + size] for start in range(0, L, size)]
    logits = mx.concatenate([feed(cache, piece) for piece in pieces])
    print(f"in pieces of {size:2}: offset {cache.offset}, same logits: {same(logits)}")

cache = KVCache(len(model.layers))
feed(cache, text[:10])
feed(cache, [1, 2, 3])  # a guess that turns out to be wrong
print(f"after a wrong guess: offset {cache.offset}")
cache.trim(3)
logits = feed(cache, text[10:])
print(f"trimmed, then the rest: offset {cache.offset}, same logits: {same(logits)}")
