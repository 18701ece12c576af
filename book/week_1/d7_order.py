"""Apply two steps of a sampler in both orders, and print the probabilities."""

from collections.abc import Callable

import mlx.core as mx

from tiny_llm.sampler import apply_min_p, apply_repetition_penalty, apply_top_k, apply_top_p

scores = mx.array([[4.0, 3.0, 2.0, 1.0, 0.0, -2.0]])
box = mx.array([[0]])  # the only token that has occurred

Step = Callable[[mx.array], mx.array]
STEPS: dict[str, Step] = {
    "temperature 2": lambda x: x / 2,
    "min-p 0.1": lambda x: apply_min_p(x, 0.1),
    "top-k 3": lambda x: apply_top_k(x, 3),
    "top-p 0.9": lambda x: apply_top_p(x, 0.9),
    "penalty 3": lambda x: apply_repetition_penalty(x, box, 3),
    "top-k 2": lambda x: apply_top_k(x, 2),
}

for first, second in (("temperature 2", "min-p 0.1"), ("top-k 3", "top-p 0.9"), ("penalty 3", "top-k 2")):
    for one, two in ((first, second), (second, first)):
        probs = mx.softmax(STEPS[two](STEPS[one](scores)), axis=-1)[0].tolist()
        kept = " ".join("    -" if prob == 0 else f"{prob:5.3f}" for prob in probs)
        print(f"{one + ', ' + two:27} {kept}")
    print()
