"""Batched sampling: the next tokens of all requests of a step, chosen at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ..finite import check_finite
from .batch import Chunk
from .decoding import Chosen, Decoding
from .logprobs import Logits, biased, note_logprobs, rows_of
from .request import Request
from .sampling_params import SamplingParams

__all__ = ["BatchSampler", "Settings", "penalise", "sample_rows"]

_FIRST = 256  # logits of a row that are looked at first


@dataclass(frozen=True)
class Settings:
    """Sampling parameters of N rows, each an array of N. They mean what they mean in `make_sampler`."""

    temperature: NDArray[np.float32]
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float64]
    min_p: NDArray[np.float64]

    @classmethod
    def of(cls, params: Sequence[SamplingParams]) -> "Settings":
        return cls(
            np.array([each.temperature for each in params], np.float32),
            np.array([each.top_k for each in params], np.int64),
            np.array([each.top_p for each in params], np.float64),
            np.array([each.min_p for each in params], np.float64),
        )

    def rows(self, which: NDArray[np.intp]) -> "Settings":
        """Those of some rows."""
        return Settings(self.temperature[which], self.top_k[which], self.top_p[which], self.min_p[which])


def penalise(logits: Logits, penalties: Sequence[float], texts: Sequence[Sequence[int]]) -> Logits:
    """`apply_repetition_penalty` for all rows at once, each with its own penalty and text. A new array.

    Shapes: logits: N x V, penalties: N, texts: N of any length -> N x V.
    """
    counts = [len(text) for text in texts]
    rows = np.repeat(np.arange(len(texts)), counts)
    columns = np.concatenate([np.array(text, np.int64) for text in texts])
    seen, penalty = logits[rows, columns], np.repeat(np.array(penalties, np.float32), counts)
    changed = logits.copy()
    changed[rows, columns] = np.where(seen > 0, seen / penalty, seen * penalty)
    return changed


def sample_rows(logits: Logits, settings: Settings, chances: NDArray[np.float64], first: int = _FIRST) -> list[int]:
    """Draw one token for each row, with the probabilities that a `make_sampler` with the row's settings draws it with.

    Sort a row's logits, the largest first; of equal logits, that of the smaller token comes first. Top-k, top-p and
    min-p each keep a beginning of this list: top_k tokens; of these, as many as it takes for their probabilities to sum
    to top_p or more; and those that are at least min_p times as likely as the first. The drawn token is the first at
    which the sum of the kept probabilities, divided by the sum of all that are kept, exceeds the row's chance.
    first: at most so many of a row's largest logits are sorted, unless the token depends on more of them (`is_certain`
    in `_Largest` says so). So the tokens are the same for every `first`.
    Shapes: logits: N x V, chances: N, from 0 to less than 1 -> N tokens. No temperature is 0.

    Task: w3d2.3
    """
    with np.errstate(over="ignore"):  # two logits may be farther apart than a float32 can tell
        largest = _Largest(logits, settings, min(first, logits.shape[1]))
    kept = largest.kept()
    totals = largest.totals(kept)
    place = (largest.sums <= (chances * totals)[:, None]).sum(axis=-1)
    place = np.minimum(place, kept - 1)
    rows = np.arange(len(logits))
    tokens = largest.tokens[rows, place]
    if len(rest := np.flatnonzero(~largest.is_certain(kept, place))):
        tokens[rest] = sample_rows(logits[rest], settings.rows(rest), chances[rest], 16 * first)
    found: list[int] = tokens.tolist()
    return found


class _Largest:
    """The `count` largest logits of each row, in order. weights: their probabilities, but for a factor of the row."""

    def __init__(self, logits: Logits, settings: Settings, count: int):
        self._settings, self._V = settings, logits.shape[1]
        self.tokens = _likeliest(logits, count)
        self._values = np.take_along_axis(logits, self.tokens, axis=-1)  # N, count
        self._top, self._temperature = self._values[:, :1], settings.temperature[:, None]
        self.weights = np.exp((self._values - self._top) / self._temperature, dtype=np.float64)
        self.sums = np.cumsum(self.weights, axis=-1)
        self._limits = np.where(settings.top_k > 0, np.minimum(settings.top_k, self._V), self._V)
        self._all = self._sums_after_top_k(logits)
        self._is_free = (self._limits == self._V) & (settings.top_p >= 1) & (settings.min_p == 0)

    def _sums_after_top_k(self, logits: Logits) -> NDArray[np.float64]:
        """Of each row, the weights that top-k keeps: a sum over V only where it keeps all of them, and it matters."""
        found = self._last(self.sums, np.minimum(self._limits, self.sums.shape[1]))
        whole = np.flatnonzero((self._limits == self._V) & ((self._settings.top_p < 1) | (self._settings.min_p == 0)))
        if len(whole):
            scaled = (logits[whole] - self._top[whole]) / self._temperature[whole]
            found[whole] = np.exp(scaled).sum(axis=-1, dtype=np.float64)
        return found

    def kept(self) -> NDArray[np.intp]:
        """Of each row, how many of the largest pass all filters."""
        before = self.sums - self.weights
        most = np.where(self._settings.top_p < 1, self._settings.top_p * self._all, np.inf)
        is_kept = np.arange(self.sums.shape[1]) < self._limits[:, None]
        is_kept &= (before < most[:, None]) & (self.weights > 0)
        is_kept &= self.weights >= self._settings.min_p[:, None]
        count: NDArray[np.intp] = is_kept.sum(axis=-1)
        return count

    def totals(self, kept: NDArray[np.intp]) -> NDArray[np.float64]:
        """Of each row, the sum of the weights that are kept."""
        return np.where(self._is_free, self._all, self._last(self.sums, kept))

    def is_certain(self, kept: NDArray[np.intp], place: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Of each row, whether more of its logits would change nothing. As many as are equal to the last one may be
        others than those that a full sort puts there."""
        if self.sums.shape[1] == self._V:
            return np.ones(len(kept), np.bool_)
        above = (self._values > self._values[:, -1:]).sum(axis=-1)
        is_known = (self._limits <= self.sums.shape[1]) | (self._limits == self._V)
        found: NDArray[np.bool_] = np.where(self._is_free, place < above, is_known & (kept <= above))
        return found

    @staticmethod
    def _last(sums: NDArray[np.float64], counts: NDArray[np.intp]) -> NDArray[np.float64]:
        """Of each row, the sum of its first `counts` weights."""
        found: NDArray[np.float64] = np.take_along_axis(sums, (counts - 1)[:, None], axis=-1)[:, 0]
        return found


def _likeliest(logits: Logits, count: int) -> NDArray[np.intp]:
    """The tokens of the `count` largest logits of each row, in order. Shapes: N x V -> N x count."""
    V = logits.shape[1]
    found = np.argpartition(logits, V - count, axis=-1)[:, V - count :] if count < V else np.arange(V)[None]
    found = np.sort(np.broadcast_to(found, (len(logits), count)), axis=-1)
    order = np.argsort(-np.take_along_axis(logits, found, axis=-1), axis=-1, kind="stable")
    tokens: NDArray[np.intp] = np.take_along_axis(found, order, axis=-1)
    return tokens


class BatchSampler(Decoding):
    """A `Decoding` that chooses one token for each request, for all of them at once.

    A request draws with one random number a token, from a generator of its own: its tokens do not depend on what else
    is served. With the same seed, `make_sampler` draws other tokens, of the same distribution.
    """

    def choose(self, chunks: Sequence[Chunk], logits: mx.array) -> list[Chosen]:
        requests = [chunk.request for chunk in chunks if chunk.num_logits]
        chosen = iter(self.next_tokens(requests, rows_of(logits)) if requests else [])
        return [next(chosen) if chunk.num_logits else [] for chunk in chunks]

    def next_tokens(self, requests: Sequence[Request], logits: Logits) -> list[Chosen]:
        """Shapes: logits: N x V, for N requests -> N."""
        changed = _penalised(biased(logits, requests), requests)
        tokens = changed.argmax(axis=-1).tolist()
        is_finite = [bool(np.isfinite(row).all()) for row in logits]
        drawn = [i for i, request in enumerate(requests) if request.params.temperature > 0 and is_finite[i]]
        if drawn:
            settings = Settings.of([requests[i].params for i in drawn])
            chances = np.array([requests[i].random.random() for i in drawn])
            for i, token in zip(drawn, sample_rows(changed[drawn], settings, chances), strict=True):
                tokens[i] = token
        note_logprobs(logits, requests, tokens)
        return [[token] if is_finite[i] else _not_finite(logits[i]) for i, token in enumerate(tokens)]


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
