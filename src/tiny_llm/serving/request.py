"""A request: a prompt, its parameters, and all the state that serving keeps for the request."""

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
    """The state of a request: it waits for room in the cache, runs with room in the cache, or has finished."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class TextStream:
    """A request's growing text, which contains only complete characters, and ends before the first stop string.

    text: the part of the text that no later token can change. found: whether a stop string was found.
    """

    def __init__(self, tokenizer: Decoder, stop: Sequence[str] = ()):
        self.text = ""
        self._detokenizer, self._stops = StreamingDetokenizer(tokenizer), StopStrings(stop)

    @property
    def found(self) -> bool:
        return self._stops.found

    def add(self, token: int) -> None:
        """Add the text of the next token."""
        self.text += self._stops.add(self._detokenizer.add(token))

    def finish(self) -> None:
        """End the text after the last token. Add text that was held back because it might have become a stop
        string, but not a character whose last bytes are missing."""
        if not self.found:
            self.text += self._stops.finish()


@dataclass(frozen=True)
class Draft:
    """Guesses of the next tokens. probabilities: k x V; guess i of k was drawn from row i. None means that each guess
    had probability 1."""

    tokens: Sequence[int]
    probabilities: Probabilities | None = None


class Request:
    """A prompt, its parameters and output, and all the state that serving keeps for the request.

    id: a name that no other request has. prompt, output: token ids; the output never contains an end token (`add`).
    text: an object that turns the output into text; None if no text is needed.
    finish_reason: why the request finished: "stop" (an end token or stop string came), "length" (it has all tokens that
    it may have), "abort" (its client no longer wants it), "error" (`error` is the exception); None until then.
    pages: the cache's pages that hold the request's keys and values, in the order of positions; a slot is one page.
    num_computed_tokens: how many of the request's first tokens have their keys and values in these pages.
        `RequestCache.commit` raises this number after a step. The next step writes to positions after these tokens.
    num_cached_tokens: how many of the prompt's tokens were in the cache when the request first ran (day 5); None until
        then.
    logprobs: the log-probabilities of each chosen token, an end token included, if `params.num_logprobs` asks for them.
    draft: the guesses for the current step; None means no guesses (day 6). num_drafted, num_accepted: how many tokens
        were guessed so far, and how many of these guesses were accepted.
    random: the request's own generator, from which `BatchSampler` (day 2) and `Speculative` (day 6) draw.

    Raises:
        ValueError: the prompt is empty, a parameter is out of range, or there are stop strings, but `text` is None, so
            nothing can find them.
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
        """Return prompt and output as one list, which grows with the output. Do not change this list."""
        self._tokens += self.output[len(self._tokens) - len(self.prompt) :]
        return self._tokens

    @property
    def num_tokens(self) -> int:
        """Return the length of `tokens`."""
        return len(self.prompt) + len(self.output)

    @property
    def num_pending(self) -> int:
        """Return how many tokens the model still has to run on: at first the whole prompt, later the newest token."""
        return self.num_tokens - self.num_computed_tokens

    def add(self, token: int, eos_token_ids: Collection[int], max_length: int) -> None:
        """Append the next token to the output, and finish the request if this token ends it.

        The request ends with "stop" at one of eos_token_ids, unless it ignores these, and at one of its own
        stop_token_ids: such a token is added to neither output nor text. The request also ends with "stop" if the new
        token completes a stop string in the text: this token stays in the output. The request ends with "length"
        if the output has max_tokens tokens, or if prompt and output together have max_length tokens. If both reasons
        apply, the request ends with "stop".

        Task: w3d1.1
        """
        raise NotImplementedError(
            "Week 3 Day 1 Task 1: Request.add is yours to write. "
            "Chapter: Continuous batching. "
            "Test: ./course test w3d1.1"
        )

    def finish(self, reason: FinishReason, error: Exception | None = None) -> None:
        """End the request for this reason. After an error, leave the text as it is, because decoding the text may
        have raised the error."""
        self.status, self.finish_reason, self.error = Status.FINISHED, reason, error
        if self.text is not None and error is None:
            self.text.finish()


def _check_request(request: Request) -> None:
    if not request.prompt:
        raise ValueError("prompt: expected at least one token, got none")
    if request.params.stop and request.text is None:
        raise ValueError("stop: expected a TextStream, in whose text stop strings are found, got none")
