"""Compare the formula exp(x) / sum(exp(x)) with `softmax` when a constant is added to all inputs."""

import mlx.core as mx

from tiny_llm.foundations import softmax


def naive(x: mx.array) -> mx.array:
    return mx.exp(x) / mx.exp(x).sum()


def row(x: mx.array) -> str:
    return " ".join(f"{number:8.6f}" for number in x.tolist())


for shift in (0, 80, 90, 1000):
    x = mx.array([10.0, 5.0, 2.0, 1.0]) + shift
    print(f"shift {shift:4}  naive   {row(naive(x))}")
    print(f"{'softmax':>18} {row(softmax(x))}")
