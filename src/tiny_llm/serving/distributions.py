"""How a request draws its tokens: the probabilities, and one random number for each token. Given."""

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
    """Return a sampler with a generator of its own, which draws each token with one random number.

    With the same seed, a `make_sampler` draws other tokens, with the same probabilities: it takes V random numbers for
    each token. Raises ValueError if a parameter is out of its range.
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
    """Return the probabilities with which a sampler with these parameters draws. At temperature 0, that of the
    likeliest token is 1.

    Shapes: logits: N x V, tokens: N times all tokens so far -> N x V.

    Raises:
        FloatingPointError: as `check_finite` raises it.
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
    """Draw a token. Each token has a probability in proportion to its weight.

    Shapes: weights: V, not negative, at least one above 0.
    """
    sums = np.cumsum(weights, dtype=np.float64)
    token = int(np.searchsorted(sums, random.random() * sums[-1], side="right"))
    return min(token, int(np.flatnonzero(weights)[-1]))
