"""The parameters of a request: how its tokens are chosen, what ends it, and which logprobs are reported. Given."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..generate import StopStrings

__all__ = ["Logprob", "Logprobs", "SamplingParams"]


@dataclass(frozen=True)
class SamplingParams:
    """The parameters of one request, which say how its tokens are chosen, and when the request ends.

    max_tokens: the maximum number of tokens in the output, 1 or more. temperature to seed: as in `make_sampler`, which
    checks these values.
    stop: strings; the text ends before the first of them that occurs. stop_token_ids: tokens that end the output, like
    the model's own end tokens. ignore_eos: whether the model's own end tokens are ignored.
    logit_bias: pairs of a token and a number that is added to the token's logit. presence_penalty: a number that is
        subtracted from the logit of each token in the output. frequency_penalty: a number that is subtracted from the
        logit of a token once for each occurrence of the token in the output.
    num_logprobs: how many of the likeliest tokens are reported for each position, in addition to the chosen token. None
        means that no token is reported.

    Raises:
        ValueError: max_tokens is less than 1; `stop` is a single string, or contains an empty string.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Collection[int] = ()
    ignore_eos: bool = False
    logit_bias: Sequence[tuple[int, float]] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    num_logprobs: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens: expected 1 or more, got {self.max_tokens}")
        StopStrings(self.stop)

    @property
    def is_greedy(self) -> bool:
        """Tell whether the sampler always chooses the token with the largest logit."""
        return self.temperature == 0 and self.repetition_penalty == 1

    @property
    def changes_logits(self) -> bool:
        """Tell whether the request asks for a bias or a penalty that its sampler does not apply."""
        return bool(self.logit_bias or self.presence_penalty or self.frequency_penalty)


@dataclass(frozen=True)
class Logprob:
    """A token, and the logarithm of the probability that the model gave it."""

    token: int
    logprob: float


@dataclass(frozen=True)
class Logprobs:
    """A token that was chosen, and the likeliest tokens for its position, the likeliest first."""

    chosen: Logprob
    top: Sequence[Logprob]
