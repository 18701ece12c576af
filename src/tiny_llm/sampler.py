"""Choosing the next token from logits: temperature, filters, repetition penalty, and a sampler that combines them."""

import math
import secrets

import mlx.core as mx

from .generate import Sampler

__all__ = [
    "apply_min_p",
    "apply_repetition_penalty",
    "apply_top_k",
    "apply_top_p",
    "greedy",
    "make_sampler",
    "sample",
]


def greedy(logits: mx.array, tokens: mx.array | None = None) -> mx.array:
    """Return each row's likeliest token. Every sampler is also called with the tokens so far; `greedy` ignores them.

    Shapes: logits: B x V -> B.
    """
    return mx.argmax(logits, axis=-1)


def sample(logits: mx.array, temperature: float, key: mx.array | None = None) -> mx.array:
    """Draw one token per row, with the probabilities softmax(logits / temperature). At temperature 0, take the
    likeliest token.

    Shapes: logits: B x V -> B.
    key: a key made by `mx.random.key`; the same key draws the same tokens. None means MLX's global random state.

    Task: w1d7.1
    """
    raise NotImplementedError(
        "Week 1 Day 7 Task 1: sample is yours to write. Chapter: Sampling. Test: ./course test w1d7.1"
    )


def apply_top_k(logits: mx.array, top_k: int) -> mx.array:
    """Keep each row's top_k highest logits, and set the rest to -inf. A top_k of 0, or of V or more, keeps all logits.

    Shapes: logits: B x V -> B x V. The dtype is kept.
    Source: Fan et al. 2018, "Hierarchical Neural Story Generation", section 5.4, arXiv:1805.04833.

    Task: w1d7.2
    """
    raise NotImplementedError(
        "Week 1 Day 7 Task 2: apply_top_k is yours to write. Chapter: Sampling. Test: ./course test w1d7.2"
    )


def apply_top_p(logits: mx.array, top_p: float) -> mx.array:
    """Keep the likeliest tokens until their probabilities sum to top_p or more, and set all other logits to -inf.

    The likeliest token is always kept, and a top_p of 1.0 keeps all tokens. Of equally likely tokens, keep only as many
    as the sum needs. Probabilities are summed in float32.
    Shapes: logits: B x V -> B x V. The dtype is kept.
    Source: Holtzman et al. 2019, "The Curious Case of Neural Text Degeneration", section 3.1, arXiv:1904.09751.

    Task: w1d7.2
    """
    raise NotImplementedError(
        "Week 1 Day 7 Task 2: apply_top_p is yours to write. Chapter: Sampling. Test: ./course test w1d7.2"
    )


def apply_min_p(logits: mx.array, min_p: float) -> mx.array:
    """Keep the tokens that are at least min_p times as likely as the likeliest token, and set all other logits to -inf.

    A min_p of 0.0 keeps all tokens.

    Shapes: logits: B x V -> B x V. The dtype is kept.
    Source: Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling", arXiv:2407.01082.

    Task: w1d7.2
    """
    raise NotImplementedError(
        "Week 1 Day 7 Task 2: apply_min_p is yours to write. Chapter: Sampling. Test: ./course test w1d7.2"
    )


def apply_repetition_penalty(logits: mx.array, tokens: mx.array, penalty: float) -> mx.array:
    """In each row of `logits`, rescale the logits of the tokens that occur in the same row of `tokens`.

    A logit is rescaled once, however often its token occurs. Positive logits are divided by the penalty, and negative
    logits multiplied by it. So a penalty above 1 lowers both kinds, one below 1 raises both, and 1.0 changes nothing.
    Shapes: logits: B x V, tokens: B x L, integers -> B x V. The dtype is kept.
    Source: Keskar et al. 2019, "CTRL", section 4.1, arXiv:1909.05858.

    Task: w1d7.3
    """
    raise NotImplementedError(
        "Week 1 Day 7 Task 3: apply_repetition_penalty is yours to write. Chapter: Sampling. Test: ./course test w1d7.3"
    )


def make_sampler(
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int | None = None,
) -> Sampler:
    """Make a sampler: a function from logits (B x V) and the tokens so far (B x L) to the next tokens (B).

    The sampler treats each row separately. Its steps are, in this order: repetition penalty, temperature, top-k, top-p,
    min-p, draw. Each step works on the result of the previous step, so top-p and min-p see the probabilities at the
    given temperature. At temperature 0, the sampler takes the likeliest token after the repetition penalty.
    seed: two samplers with the same seed draw the same tokens from the same logits, step by step, whatever else draws
    random numbers, because each sampler keeps its own random state. None means a new seed.

    Raises:
        ValueError: temperature or top_k is negative, repetition_penalty is not above 0, temperature or
            repetition_penalty is not finite, top_p is not above 0 and at most 1, or min_p is not from 0 to 1.
            `_check_sampling` (given) raises these errors.

    Task: w1d7.4
    """
    _check_sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    raise NotImplementedError(
        "Week 1 Day 7 Task 4: make_sampler is yours to write. Chapter: Sampling. Test: ./course test w1d7.4"
    )


def _check_sampling(temperature: float, top_k: int, top_p: float, min_p: float, repetition_penalty: float) -> None:
    rules = [
        ("temperature", temperature, "0 or more", 0 <= temperature < math.inf),
        ("top_k", top_k, "0 or more", top_k >= 0),
        ("top_p", top_p, "more than 0 and at most 1", 0 < top_p <= 1),
        ("min_p", min_p, "from 0 to 1", 0 <= min_p <= 1),
        ("repetition_penalty", repetition_penalty, "more than 0", 0 < repetition_penalty < math.inf),
    ]
    for name, value, expected, holds in rules:
        if not holds:
            raise ValueError(f"{name}: expected {expected}, got {value}")
