"""What a request may ask for in addition: logits changed before a token is chosen, log-probabilities after it.
Given."""

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
    """Return the same numbers for NumPy. Waits until they are computed."""
    rows: Logits = np.asarray(logits.astype(mx.float32))
    return rows


def biased(logits: Logits, requests: Sequence[Request]) -> Logits:
    """Return the logits after each request's logit_bias, presence_penalty and frequency_penalty. It is a new array if a
    request has any of these.

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


def note_logprobs(logits: Logits, requests: Sequence[Request], tokens: Sequence[int | None]) -> None:
    """Append to `request.logprobs` what the model thought of its next token, for each request that asks for it.

    These are the model's own log-probabilities: those before anything was changed.
    Shapes: logits: N x V, N requests, N tokens; None: a request has no next token, and gets none noted.
    """
    for row, request, token in zip(logits, requests, tokens, strict=True):
        if token is None or request.params.num_logprobs is None:
            continue
        with np.errstate(over="ignore"):  # two logits may be farther apart than a float32 can tell
            found = row - row.max()
        found = np.maximum(found - np.log(np.exp(found).sum()), _LEAST)
        top = [Logprob(each, float(found[each])) for each in _likeliest(found, request.params.num_logprobs)]
        request.logprobs.append(Logprobs(Logprob(token, float(found[token])), top))


def _likeliest(values: Logits, count: int) -> list[int]:
    """Return the tokens of the `count` largest values, the largest first; of equal values, that of the smaller
    token."""
    count = min(count, len(values))
    if not count:
        return []
    tokens = np.flatnonzero(values >= np.partition(values, -count)[-count])
    found: list[int] = tokens[np.argsort(-values[tokens], kind="stable")][:count].tolist()
    return found
