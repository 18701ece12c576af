"""Batched sampling: the next tokens of all requests of a step, chosen at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tiny_llm_given.finite import check_finite

from .batch import Chunk
from .decoding import Chosen, Decoding
from .logprobs import Logits, biased, note_logprobs, rows_of
from .request import Request
from .sampling_params import SamplingParams

__all__ = ["BatchSampler", "Settings", "penalise", "sample_rows"]

_FIRST = 256  # how many of a row's largest logits the filters look at first
_LARGEST = 2**63 - 1  # an int64


@dataclass(frozen=True)
class Settings:
    """The sampling parameters of N rows. Each field is a parameter of `make_sampler`, with one value per row."""

    temperature: NDArray[np.float32]
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float64]
    min_p: NDArray[np.float64]

    @classmethod
    def of(cls, params: Sequence[SamplingParams]) -> "Settings":
        return cls(
            np.array([each.temperature for each in params], np.float32),
            np.array([min(each.top_k, _LARGEST) for each in params], np.int64),
            np.array([each.top_p for each in params], np.float64),
            np.array([each.min_p for each in params], np.float64),
        )

    def keeps_all(self, V: int) -> NDArray[np.bool_]:
        """Tell, for each row, whether the filters keep all V tokens."""
        keeps: NDArray[np.bool_] = ((self.top_k == 0) | (self.top_k >= V)) & (self.top_p >= 1) & (self.min_p == 0)
        return keeps

    def rows(self, which: NDArray[np.intp]) -> "Settings":
        """Return the parameters of the rows with these indices."""
        return Settings(self.temperature[which], self.top_k[which], self.top_p[which], self.min_p[which])


def penalise(logits: Logits, penalties: Sequence[float], texts: Sequence[Sequence[int]]) -> Logits:
    """Apply the rule of `apply_repetition_penalty` to all rows at once, with a penalty and a text (all tokens so far)
    for each row. Return a new array.

    Shapes: logits: N x V, penalties: N, texts: N lists of tokens, of any length -> N x V.
    """
    counts = [len(text) for text in texts]
    rows = np.repeat(np.arange(len(texts)), counts)
    columns = np.concatenate([np.array(text, np.int64) for text in texts])
    seen, penalty = logits[rows, columns], np.repeat(np.array(penalties, np.float32), counts)
    changed = logits.copy()
    changed[rows, columns] = np.where(seen > 0, seen / penalty, seen * penalty)
    return changed


def sample_rows(logits: Logits, settings: Settings, chances: NDArray[np.float64], first: int = _FIRST) -> list[int]:
    """Draw one token for each row, with the same probabilities as a sampler that `make_sampler` makes from the row's
    settings.

    Sort a row's logits, the largest first, and equal logits by token id, the smallest first. Each filter keeps a
    beginning of this list. Top-k keeps top_k tokens (`apply_top_k` keeps more if several logits equal the smallest kept
    logit). Top-p scales the probabilities of these tokens so that they sum to 1, and keeps the shortest beginning whose
    probabilities sum to top_p or more. Min-p keeps the tokens at least min_p times as likely as the first token.
    Go through the kept tokens in the order of the vocabulary, and add up their probabilities, scaled so that the
    probabilities of all kept tokens sum to 1. The drawn token is the first token at which the sum exceeds the row's
    number in `chances`. Compute the sums in float64, so that small probabilities count.
    first: how many of a row's largest logits the filters look at first. If a filter may keep more tokens, all logits
    are searched, so `first` never changes which tokens are drawn. A row whose filters keep all tokens is not sorted.
    Shapes: logits: N x V, chances: N, from 0 to less than 1 -> N tokens. No temperature is 0.

    Task: w3d2.3
    """
    raise NotImplementedError(
        "Week 3 Day 2 Task 3: sample_rows is yours to write. Chapter: Chunked prefill. Test: ./course test w3d2.3"
    )


class BatchSampler(Decoding):
    """A `Decoding` that chooses the next tokens of all requests at once, one token per request.

    A request draws each token with one number from its own generator, so its tokens do not depend on other requests.
    """

    def choose(self, chunks: Sequence[Chunk], logits: mx.array) -> list[Chosen]:
        requests = [chunk.request for chunk in chunks if chunk.num_logits]
        chosen = iter(self.next_tokens(requests, rows_of(logits)) if requests else [])
        return [next(chosen) if chunk.num_logits else [] for chunk in chunks]

    def next_tokens(self, requests: Sequence[Request], logits: Logits) -> list[Chosen]:
        """Return the next token of each request, or the exception that sampling raised.

        Shapes: logits: N x V, for N requests -> N.
        """
        changed = _penalised(biased(logits, requests), requests)
        tokens: list[int | None] = [  # None: no token, because the model's logits are not finite
            token if np.isfinite(row).all() else None
            for token, row in zip(changed.argmax(axis=-1).tolist(), logits, strict=True)
        ]
        drawn = [i for i, token in enumerate(tokens) if token is not None and requests[i].params.temperature > 0]
        if drawn:
            settings = Settings.of([requests[i].params for i in drawn])
            chances = np.array([requests[i].random.random() for i in drawn])
            for i, token in zip(drawn, sample_rows(changed[drawn], settings, chances), strict=True):
                tokens[i] = token
        note_logprobs(logits, requests, tokens)
        return [[token] if token is not None else _not_finite(row) for token, row in zip(tokens, logits, strict=True)]


def _penalised(logits: Logits, requests: Sequence[Request]) -> Logits:
    rows = [i for i, request in enumerate(requests) if request.params.repetition_penalty != 1]
    if not rows:
        return logits
    penalties = [requests[i].params.repetition_penalty for i in rows]
    changed = logits.copy()
    changed[rows] = penalise(logits[rows], penalties, [requests[i].tokens for i in rows])
    return changed


def _not_finite(logits: Logits) -> Exception:
    try:
        check_finite(mx.array(logits))
    except FloatingPointError as error:
        return error
    raise AssertionError("all logits are finite")
