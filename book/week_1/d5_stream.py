"""Print the RMS of the last token's vector after each block, and the next tokens that this vector predicts."""

import mlx.core as mx

from tiny_llm.kv_cache import NoCache
from tiny_llm.models import load

TEXT = "Mia had a red key. She hid the key in the old box. Ben took the key out of the old"

model, tokenizer = load("story", mx.float32)
cache = NoCache(len(model.layers))


def show(where: str, x: mx.array) -> None:
    last = x[:, -1]  # B, E
    chances = mx.softmax(model.logits(model.norm(last))[0])
    best = [f"{tokenizer.decode([i]).strip()} {chances[i].item():.2f}" for i in mx.argsort(-chances)[:3].tolist()]
    print(f"{where:10} RMS {mx.sqrt(mx.mean(last * last)).item():5.2f}   {', '.join(best)}")


x = model.embed_tokens(mx.array([tokenizer.encode(TEXT)]))
show("embedding", x)
for number, (layer, layer_cache) in enumerate(zip(model.layers, cache.layers, strict=True), start=1):
    x = layer(x, layer_cache)
    show(f"block {number}", x)
