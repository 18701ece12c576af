"""The probabilities of a request's next tokens, and a function that draws a token with one random number. Given."""

from collections.abc import Sequence
from typing import TypeAlias

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tiny_llm_given.finite import check_finite
from tiny_llm_native.argmax import argmax

from ..generate import Sampler
from ..sampler import apply_min_p, apply_repetition_penalty, apply_top_k, apply_top_p, greedy, make_sampler
from .sampling_params import SamplingParams

__all__ = ["Probabilities", "draw", "probabilities", "sampler_of"]

Probabilities: TypeAlias = NDArray[np.float32]  # N x V, each row sums to 1


def sampler_of(params: SamplingParams) -> Sampler:
    """Return a sampler that draws each token with one random number from the sampler's own generator.

    A sampler from `make_sampler` uses V random numbers per token, so with the same seed its tokens differ from those of
    this sampler, but have the same probabilities. Raises ValueError if a parameter is out of range.
    """
    make_sampler(
        params.temperature, params.top_k, params.top_p, params.min_p, params.repetition_penalty, seed=params.seed
    )
    random = np.random.default_rng(params.seed)

    def sampler(logits: mx.array, tokens: mx.array) -> mx.array:
        rows = probabilities(params, logits, np.array(tokens).tolist())
        return mx.array([draw(row, random) for row in rows])

    return (lambda logits, tokens: argmax(logits)) if params.is_greedy else sampler


def probabilities(params: SamplingParams, logits: mx.array, tokens: Sequence[Sequence[int]]) -> Probabilities:
    """Return the probabilities with which a sampler with these parameters draws each token. At temperature 0, the
    likeliest token has probability 1.

    tokens: for each row, all tokens of its request so far.
    Shapes: logits: N x V -> N x V.

    Raises:
        FloatingPointError: a logit is NaN or infinite.
    """
    logits = logits.astype(mx.float32)
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
    logits = apply_top_k(logits / params.temperature, params.top_k)
    logits = apply_min_p(apply_top_p(logits, params.top_p), params.min_p)
    return np.array(mx.softmax(logits, axis=-1))


def draw(weights: Probabilities, random: np.random.Generator) -> int:
    """Draw a token with one random number. The probability of a token is proportional to its weight.

    Shapes: weights: V numbers, none negative, at least one above 0.
    """
    sums = np.cumsum(weights, dtype=np.float64)
    token = int(np.searchsorted(sums, random.random() * sums[-1], side="right"))
    return min(token, int(np.flatnonzero(weights)[-1]))
