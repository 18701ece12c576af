"""The probabilities that a request's tokens are drawn from. Given."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from ..finite import check_finite
from ..sampler import apply_min_p, apply_repetition_penalty, apply_top_k, apply_top_p, greedy
from .request import Probabilities
from .sampling_params import SamplingParams

__all__ = ["draw", "probabilities"]


def probabilities(params: SamplingParams, logits: mx.array, tokens: Sequence[Sequence[int]]) -> Probabilities:
    """What a sampler with these parameters draws from: for temperature 0, all of it on the likeliest token.

    Shapes: logits: N x V, tokens: N times all tokens so far -> N x V.

    Raises:
        FloatingPointError: of `check_finite`.
    """
    check_finite(logits)
    if params.repetition_penalty != 1:
        rows = [
            apply_repetition_penalty(logits[i : i + 1], mx.array([list(tokens[i])]), params.repetition_penalty)
            for i in range(len(tokens))
        ]
        logits = mx.concatenate(rows)
    if params.temperature == 0:
        certain = np.zeros(logits.shape, np.float32)
        certain[np.arange(len(certain)), np.array(greedy(logits))] = 1
        return certain
    logits = apply_top_k(logits.astype(mx.float32) / params.temperature, params.top_k)
    logits = apply_min_p(apply_top_p(logits, params.top_p), params.min_p)
    return np.array(mx.softmax(logits, axis=-1))


def draw(weights: Probabilities, random: np.random.Generator) -> int:
    """A token, each with a probability in proportion to its weight.

    Shapes: weights: V, not negative, at least one above 0.
    """
    sums = np.cumsum(weights, dtype=np.float64)
    token = int(np.searchsorted(sums, random.random() * sums[-1], side="right"))
    return min(token, int(np.flatnonzero(weights)[-1]))
