"""Print how each step of a sampler changes a distribution over six words."""

import mlx.core as mx

from tiny_llm.sampler import apply_min_p, apply_repetition_penalty, apply_top_k, apply_top_p, sample

WORDS = ["box", "bag", "bed", "car", "sea", "sun"]  # "The key is in the ..."
scores = mx.array([[4.0, 3.0, 2.0, 1.0, 0.0, -2.0]])  # 1, V


def show(name: str, logits: mx.array) -> None:
    row = mx.softmax(logits, axis=-1)[0].tolist()
    print(f"{name:28}", " ".join("     -" if prob == 0 else f"{prob:6.3f}" for prob in row))


print(f"{'':28}", " ".join(f"{word:>6}" for word in WORDS))
show("as they are", scores)
show("penalty 1.5 on box and sun", apply_repetition_penalty(scores, mx.array([[0, 5, 0]]), 1.5))
for temperature in (0.5, 2):
    logits = scores / temperature
    show(f"temperature {temperature}", logits)
    show("  top-k 3", apply_top_k(logits, 3))
    show("  top-p 0.9", apply_top_p(logits, 0.9))
    show("  min-p 0.1", apply_min_p(logits, 0.1))

draws = sample(mx.broadcast_to(scores, (100_000, 6)), 2.0, mx.random.key(7))  # one row per draw
counts = [(draws == token).sum().item() for token in range(6)]
print(f"{'100,000 draws, temperature 2':28}", " ".join(f"{count / 100_000:6.3f}" for count in counts))
