"""A request: a prompt and its parameters, and all state that serving keeps of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

import numpy as np

from ..generate import Decoder, StopStrings, StreamingDetokenizer
from .distributions import Probabilities, sampler_of
from .sampling_params import Logprobs, SamplingParams

__all__ = ["Draft", "FinishReason", "Request", "Status", "TextStream"]

FinishReason: TypeAlias = Literal["stop", "length", "abort", "error"]


class Status(Enum):
    """The state of a request: it waits for room in the cache, runs with room in the cache, or is over."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class TextStream:
    """A request's text, as its tokens come: without half characters, cut before the first stop string.

    text: the text that is certain by now. found: whether there was a stop string.
    """

    def __init__(self, tokenizer: Decoder, stop: Sequence[str] = ()):
        self.text = ""
        self._detokenizer, self._stops = StreamingDetokenizer(tokenizer), StopStrings(stop)

    @property
    def found(self) -> bool:
        return self._stops.found

    def add(self, token: int) -> None:
        """Take the next token."""
        self.text += self._stops.add(self._detokenizer.add(token))

    def finish(self) -> None:
        """Note that no token follows. What might have become a stop string is text after all; a character without its
        last bytes is not."""
        if not self.found:
            self.text += self._stops.finish()


@dataclass(frozen=True)
class Draft:
    """Guesses of the next tokens. probabilities: the row that each was drawn from, k x V; None: they are certain."""

    tokens: Sequence[int]
    probabilities: Probabilities | None = None


class Request:
    """A prompt, the tokens generated for it, and all state that serving keeps of it.

    id: a name that no other request has. prompt, output: token ids; the output never contains an end token (`add`).
    text: an object that turns the output into text; None if no text is needed.
    finish_reason: why the request is over: "stop" (an end came), "length" (it got all tokens it may have), "abort" (it
    is not wanted any more), "error" (`error` is the exception); None while it is not over.
    pages: the cache's pages that hold its keys and values, in the order of its positions. A slot is one long page.
    num_computed_tokens: how many of its first tokens are computed: their keys and values are in these pages.
        `RequestCache.commit` moves it forward after a step. Room beyond it is reserved: the next step writes there.
    num_cached_tokens: how many tokens of its prompt the cache had already when the request first ran (day 5); None
        before.
    logprobs: the log-probabilities of each chosen token, an end token included, if `params.num_logprobs` asks for them.
    draft: tokens guessed for the step at hand; None: no guesses (day 6). num_drafted, num_accepted: how many tokens
        were guessed so far, and how many of them were accepted.
    random: a generator of its own, from which `BatchSampler` (day 2) and `Speculative` (day 6) draw.

    Raises:
        ValueError: the prompt is empty, a parameter is out of range, or there are stop strings and no text to find
            them in.
    """

    def __init__(
        self,
        id: str,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        text: TextStream | None = None,
    ):
        self.id = id
        self.prompt = tuple(prompt)
        self.params = SamplingParams() if params is None else params
        self.text = text
        _check_request(self)
        self.sampler = sampler_of(self.params)
        self.random = np.random.default_rng(self.params.seed)
        self.output: list[int] = []
        self.logprobs: list[Logprobs] = []
        self._tokens = list(prompt)
        self.status = Status.WAITING
        self.finish_reason: FinishReason | None = None
        self.error: Exception | None = None
        self.pages: list[int] = []
        self.num_computed_tokens = 0
        self.num_cached_tokens: int | None = None
        self.draft: Draft | None = None
        self.num_drafted = self.num_accepted = 0

    def __repr__(self) -> str:
        return f"Request({self.id!r}, {self.status.value})"

    @property
    def tokens(self) -> list[int]:
        """Return prompt and output, in one list that grows with the output. Do not change it."""
        self._tokens += self.output[len(self._tokens) - len(self.prompt) :]
        return self._tokens

    @property
    def num_tokens(self) -> int:
        """Return the length of `tokens`."""
        return len(self.prompt) + len(self.output)

    @property
    def num_pending(self) -> int:
        """Return how many of its tokens the model still has to run on: the prompt at first, later the newest token."""
        return self.num_tokens - self.num_computed_tokens

    def add(self, token: int, eos_token_ids: Collection[int], max_length: int) -> None:
        """Take the next token. It is one more token of the output, or it is the end, and then the request is finished.

        It ends with "stop" at one of eos_token_ids, unless the request ignores them, or of its own stop_token_ids: that
        token is in neither output nor text. It ends with "stop", too, if the text now contains a stop string: the token
        that completed it is in the output. It ends with "length" if the output has max_tokens tokens, or if prompt and
        output together have max_length. If there is more than one reason, "stop" counts.

        Task: w3d1.1
        """
        raise NotImplementedError(
            "Week 3 Day 1 Task 1: Request.add is yours to write. "
            "Chapter: Continuous batching. "
            "Test: ./course test w3d1.1"
        )

    def finish(self, reason: FinishReason, error: Exception | None = None) -> None:
        """End the request for this reason. After an error the text stays as it is: it may have been the text that
        failed."""
        self.status, self.finish_reason, self.error = Status.FINISHED, reason, error
        if self.text is not None and error is None:
            self.text.finish()


def _check_request(request: Request) -> None:
    if not request.prompt:
        raise ValueError("prompt: expected at least one token, got none")
    if request.params.stop and request.text is None:
        raise ValueError("stop: expected a TextStream, in whose text stop strings are found, got none")
