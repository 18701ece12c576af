"""Optional extras of a request: changes to its logits before a token is chosen, and log-probabilities. Given."""

from collections.abc import Sequence
from typing import TypeAlias

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from .request import Request
from .sampling_params import Logprob, Logprobs

__all__ = ["Logits", "biased", "note_logprobs", "rows_of"]

Logits: TypeAlias = NDArray[np.float32]  # N x V
_LEAST = -9999.0  # OpenAI's API reports this number for a token that is practically impossible


def rows_of(logits: mx.array) -> Logits:
    """Return logits as a NumPy array in float32. Wait until MLX has computed the logits."""
    rows: Logits = np.asarray(logits.astype(mx.float32))
    return rows


def biased(logits: Logits, requests: Sequence[Request]) -> Logits:
    """Apply each request's logit_bias, presence_penalty and frequency_penalty to its row of logits. Return a new array
    if any request has one of these settings, otherwise the logits themselves.

    In week 4, this function also rules out the tokens that a grammar does not allow.
    Shapes: logits: N x V, for N requests -> N x V.
    """
    changes = {row: request for row, request in enumerate(requests) if request.params.changes_logits}
    if not changes:
        return logits
    logits = logits.copy()
    for row, request in changes.items():
        params = request.params
        tokens, counts = np.unique(np.array(request.output, np.int64), return_counts=True)
        logits[row, tokens] -= params.presence_penalty + params.frequency_penalty * counts
        for token, bias in params.logit_bias:
            logits[row, token] += bias
    return logits


def note_logprobs(logits: Logits, requests: Sequence[Request], tokens: Sequence[int | None]) -> None:
    """For each request that asks for log-probabilities, append its next token's `Logprobs` to `request.logprobs`.

    logits: the model's own logits, before any change. tokens: the next token of each request; None if a request has no
    next token, so nothing is appended to its `logprobs`.
    Shapes: logits: N x V, for N requests and N tokens.
    """
    for row, request, token in zip(logits, requests, tokens, strict=True):
        if token is None or request.params.num_logprobs is None:
            continue
        with np.errstate(over="ignore"):  # the difference of two logits may overflow in float32
            found = row - row.max()
        found = np.maximum(found - np.log(np.exp(found).sum()), _LEAST)
        top = [Logprob(each, float(found[each])) for each in _likeliest(found, request.params.num_logprobs)]
        request.logprobs.append(Logprobs(Logprob(token, float(found[token])), top))


def _likeliest(values: Logits, count: int) -> list[int]:
    """Return the tokens with the `count` largest values, the largest value first; among tokens with equal values, the
    smallest id first."""
    count = min(count, len(values))
    if not count:
        return []
    tokens = np.flatnonzero(values >= np.partition(values, -count)[-count])
    found: list[int] = tokens[np.argsort(-values[tokens], kind="stable")][:count].tolist()
    return found
