"""What a request may ask for besides: logits changed before a token is chosen, log-probabilities after it. Given."""

from collections.abc import Sequence
from typing import TypeAlias

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from .request import Request
from .sampling_params import Logprob, Logprobs

__all__ = ["Logits", "biased", "note_logprobs", "rows_of"]

Logits: TypeAlias = NDArray[np.float32]  # N x V
_LEAST = -9999.0  # what OpenAI's API says of a token that is as good as impossible


def rows_of(logits: mx.array) -> Logits:
    """The same numbers for NumPy. Waits until they are computed."""
    rows: Logits = np.asarray(logits.astype(mx.float32))
    return rows


def biased(logits: Logits, requests: Sequence[Request]) -> Logits:
    """The logits after each request's logit_bias, presence_penalty and frequency_penalty. A new array if one has any.

    Week 4 adds the tokens that a grammar does not allow.
    Shapes: N x V, N requests -> N x V.
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


def note_logprobs(logits: Logits, requests: Sequence[Request], tokens: Sequence[int]) -> None:
    """Append to `request.logprobs` what the model thought of its next token, for each request that asks for it.

    These are the model's own log-probabilities: those before anything was changed.
    Shapes: logits: N x V, N requests, N tokens.
    """
    rows = [row for row, request in enumerate(requests) if request.params.num_logprobs is not None]
    if not rows:
        return
    with np.errstate(over="ignore"):  # two logits may be farther apart than a float32 can tell
        found = logits[rows] - logits[rows].max(axis=-1, keepdims=True)
    found = np.maximum(found - np.log(np.exp(found).sum(axis=-1, keepdims=True)), _LEAST)
    for row, logprobs in zip(rows, found, strict=True):
        request = requests[row]
        likeliest = np.argsort(-logprobs, kind="stable")[: request.params.num_logprobs].tolist()
        top = [Logprob(token, float(logprobs[token])) for token in likeliest]
        request.logprobs.append(Logprobs(Logprob(tokens[row], float(logprobs[tokens[row]])), top))
