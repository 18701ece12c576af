"""Train a tiny model to predict random tokens, which is impossible. Without a mask, the model seems to succeed."""

import math

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

from tiny_llm.attention import causal_mask, scaled_dot_product_attention_simple

V, L, E = 16, 12, 32


def scores(weights: dict[str, mx.array], tokens: mx.array, mask: mx.array | None) -> mx.array:
    """Return the logits for the next token at each position, from a single attention layer."""
    x = weights["token"][tokens] + weights["position"]  # B, L, E
    q, k, v = (x @ weights[name] for name in ("query", "key", "value"))
    x = x + scaled_dot_product_attention_simple(q, k, v, mask=mask)
    return x @ weights["output"]  # B, L, V


def train(mask: mx.array | None) -> dict[str, mx.array]:
    """Return weights trained on L predictions per random text of L + 1 tokens."""
    mx.random.seed(0)
    sizes = {"token": (V, E), "position": (L, E), "query": (E, E), "key": (E, E), "value": (E, E), "output": (E, V)}
    weights = {name: mx.random.normal(size) / math.sqrt(E) for name, size in sizes.items()}

    def loss(weights: dict[str, mx.array], text: mx.array) -> mx.array:
        return nn.losses.cross_entropy(scores(weights, text[:, :-1], mask), text[:, 1:], reduction="mean")

    adam, slopes_of = optim.Adam(learning_rate=0.01), mx.grad(loss)
    for _ in range(200):
        weights = adam.apply_gradients(slopes_of(weights, mx.random.randint(0, V, (64, L + 1))), weights)
        mx.eval(weights, adam.state)
    return weights


def test(weights: dict[str, mx.array], mask: mx.array | None) -> str:
    text = mx.random.randint(0, V, (1000, L + 1), key=mx.random.key(1))
    right = mx.argmax(scores(weights, text[:, :-1], mask), axis=-1) == text[:, 1:]
    return f"{100 * right.mean().item():3.0f} % right"


causal = causal_mask(L, L)
honest, cheat = train(causal), train(None)
print(f"guessing:                            {100 / V:3.0f} % right")
print("trained with the mask, used with it:", test(honest, causal))
print("trained without it, used without it:", test(cheat, None))
print("trained without it, used with it:   ", test(cheat, causal))
