"""What a call asks for, as requests of the engine. Given."""

import secrets
from collections.abc import Sequence
from typing import Any

from .async_engine import Update
from .metrics import Metrics
from .protocol import GenerationRequest
from .request import FinishReason, Request, TextStream
from .responses import Usage
from .scores import Scored, Scores, score

__all__ = ["Choice"]


class Choice:
    """One of those that a call asks for: a prompt, the request that comes of it, and what it has.

    number: among the choices of the same prompt, from 0 on.
    """

    def __init__(self, tokens: Sequence[int], text: str, body: GenerationRequest, number: int, max_tokens: int):
        self.tokens, self.text = tokens, text
        self.reason: FinishReason | None = None
        self.request: Request | None = None
        self._body, self._params, self._is_first = body, body.sampling(max_tokens, number), number == 0
        self._scores: Scores | None = None
        self._num_scored = 0

    def make_request(self, tokenizer: Any) -> Request:
        """In the engine's thread."""
        text = TextStream(tokenizer, self._params.stop)
        self.request = Request(secrets.token_hex(8), self.tokens, self._params, text)
        self._scores = score(self.request, self._body.scores)
        return self.request

    def scored(self, update: Update) -> list[Scored] | None:
        """Of an update's tokens, if the client asked for it."""
        if self._scores is None or self._body.num_top is None:
            return None
        start, self._num_scored = self._num_scored, self._num_scored + len(update.tokens)
        return self._scores.found[start : self._num_scored]

    def usage(self, metrics: Metrics) -> Usage:
        """What it adds to the usage of its call, in which a prompt counts once, however many choices it has."""
        request = self.request
        assert request is not None
        prompt, cached = (len(self.tokens), metrics.cached.get(request, 0)) if self._is_first else (0, 0)
        return Usage(prompt, len(request.output), cached, request.num_drafted, request.num_accepted)
