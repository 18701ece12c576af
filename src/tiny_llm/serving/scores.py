"""What a request may ask for besides: scores changed before a token is drawn, probabilities told after it. Given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from ..generate import Sampler
from .request import Request

__all__ = ["Logprob", "ScoreParams", "Scored", "Scores", "score"]

_LEAST = -9999.0  # what OpenAI's API says of a token that is as good as impossible


@dataclass(frozen=True)
class Logprob:
    """A token, and the logarithm of the probability that the model gave it."""

    token: int
    logprob: float


@dataclass(frozen=True)
class Scored:
    """A token that was chosen, and the likeliest at its place, the likeliest first."""

    chosen: Logprob
    top: Sequence[Logprob]


@dataclass(frozen=True)
class ScoreParams:
    """logit_bias: what is added to a token's score. presence_penalty: what is taken off the score of each token that
    the output has; frequency_penalty: the same, as many times as the output has it. num_top: how many of the likeliest
    tokens are told of each place; None: not even the chosen one."""

    logit_bias: Mapping[int, float] = field(default_factory=dict)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    num_top: int | None = None

    @property
    def changes_scores(self) -> bool:
        return bool(self.logit_bias or self.presence_penalty or self.frequency_penalty)


class Scores:
    """A sampler around a request's own: changes scores before, and keeps in `found` what there was to choose from.

    Probabilities are the model's own: those before anything was changed.
    """

    def __init__(self, sampler: Sampler, num_prompt: int, params: ScoreParams):
        self.found: list[Scored] = []
        self._sampler, self._num_prompt, self._params = sampler, num_prompt, params

    def __call__(self, logits: mx.array, tokens: mx.array) -> mx.array:
        """Shapes: logits: 1 x V, tokens: 1 x L -> 1."""
        scores = logits
        if self._params.changes_scores:
            output = np.array(tokens[0, self._num_prompt :])
            scores = logits + mx.array(self._changes(logits.shape[-1], output))[None]
        chosen = self._sampler(scores, tokens)
        if self._params.num_top is not None:
            self.found.append(self._scored(logits, int(chosen[0]), self._params.num_top))
        return chosen

    def _changes(self, vocab_size: int, output: np.ndarray) -> np.ndarray:
        """What is added to each score. Shapes: -> V."""
        changes = np.zeros(vocab_size, np.float32)
        for token, bias in self._params.logit_bias.items():
            changes[token] += bias
        counts = np.bincount(output, minlength=vocab_size)
        changes -= self._params.frequency_penalty * counts + self._params.presence_penalty * (counts > 0)
        return changes

    @staticmethod
    def _scored(logits: mx.array, chosen: int, num_top: int) -> Scored:
        scores = logits[0].astype(mx.float32)
        logprobs = np.maximum(np.array(scores - mx.logsumexp(scores)), _LEAST)
        likeliest = np.argsort(-logprobs, kind="stable")[:num_top].tolist()
        top = [Logprob(token, float(logprobs[token])) for token in likeliest]
        return Scored(Logprob(chosen, float(logprobs[chosen])), top)


def score(request: Request, params: ScoreParams) -> Scores | None:
    """Let a new request choose its tokens by these as well. None: they ask for nothing."""
    if not params.changes_scores and params.num_top is None:
        return None
    request.sampler = scores = Scores(request.sampler, len(request.prompt), params)
    return scores
