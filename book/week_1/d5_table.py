"""Print which rows of the embedding table point in similar directions."""

import mlx.core as mx

from tiny_llm.models import load

model, tokenizer = load("story", mx.float32)
table = model.embed_tokens.weight  # V, E
directions = table / mx.sqrt((table * table).sum(axis=-1, keepdims=True))

for word in (" red", " garden", " under", " dog", " box", "赤い"):
    (token,) = tokenizer.encode(word)
    closeness = directions @ directions[token]  # V: cosines
    near = mx.argsort(-closeness)[1:7].tolist()  # the first is the token itself
    print(f"{word!r:9}", ", ".join(f"{tokenizer.decode([i]).strip()} {closeness[i].item():.2f}" for i in near))

tokens = mx.arange(model.config.vocab_size)
found = mx.argmax(model.embed_tokens.as_linear(model.embed_tokens(tokens)), axis=-1)
print(f"rows that score highest for themselves: {100 * (found == tokens).astype(mx.float32).mean().item():.1f} %")
