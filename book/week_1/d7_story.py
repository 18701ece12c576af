"""Print the probability of the likeliest next token, and how many tokens of `story` each filter keeps."""

import mlx.core as mx

from tiny_llm.models import load
from tiny_llm.sampler import apply_min_p, apply_top_k, apply_top_p

model, tokenizer = load("story", mx.float32)
FILTERS = {
    "top-k 40": lambda x: apply_top_k(x, 40),
    "top-p 0.9": lambda x: apply_top_p(x, 0.9),
    "min-p 0.1": lambda x: apply_min_p(x, 0.1),
}

print(f"{'the text so far':42} likeliest     prob", " ".join(f"{name:>9}" for name in FILTERS))
for text in (
    "Once upon a",
    "Once upon a time, there was a girl",
    "Once upon a time, there was a girl named",
    "Mia had a red key. She hid the",
    "Mia had a red key. She hid the key in the",
    "Mia had a",
):
    logits = model(mx.array([tokenizer.encode(text)]))[:, -1]  # 1, V
    probs = mx.softmax(logits, axis=-1)
    kept = [mx.isfinite(keep(logits)).sum().item() for keep in FILTERS.values()]
    likeliest = tokenizer.decode([probs.argmax().item()])
    print(f"{text:42} {likeliest!r:11} {probs.max().item():6.3f}", " ".join(f"{count:9}" for count in kept))
