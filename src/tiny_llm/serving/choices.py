"""The choices of an API call, which the engine serves as requests. Given."""

import secrets
from collections.abc import Sequence
from typing import Any

from ..thinking import Thoughts
from .async_engine import Counts, Update
from .protocol import GenerationRequest
from .request import Request, TextStream
from .sampling_params import Logprobs
from .thinking_stream import ThinkingStream

__all__ = ["Choice"]


class Choice:
    """A choice of an API call: a prompt, the request made from it, and the answer so far.

    number: the index of this choice among the choices for the same prompt. echoed: the prompt's text if the answer
    begins with it, otherwise "". thoughts: the reader that separates thinking from the answer; None for a completion.
    """

    def __init__(
        self,
        tokens: Sequence[int],
        echoed: str,
        body: GenerationRequest,
        number: int,
        max_tokens: int,
        thoughts: Thoughts | None = None,
    ):
        self.tokens = tokens
        self.request: Request | None = None
        self._echoed, self._is_first = echoed, number == 0
        self._body, self._params = body, body.sampling(max_tokens, number)
        self._thoughts = thoughts
        self._num_seen = 0  # tokens of the output that `take` has returned

    def make_request(self, tokenizer: Any) -> Request:
        """Make the request. The engine's thread calls this method."""
        stop = self._params.stop
        text = (
            TextStream(tokenizer, stop) if self._thoughts is None else ThinkingStream(tokenizer, self._thoughts, stop)
        )
        self.request = Request(secrets.token_hex(8), self.tokens, self._params, text)
        return self.request

    def take(self, update: Update) -> Update:
        """Return the update with the echoed text, the thinking, the log-probabilities and the counts filled in."""
        seen = slice(self._num_seen, self._num_seen + len(update.tokens))
        text, self._num_seen, self._echoed = self._echoed + update.text, seen.stop, ""
        thoughts = self._all_thoughts[seen] or [None] * len(update.tokens)
        thinking = [each for each in thoughts if each is not None]
        logprobs, counts = self._logprobs(seen, thoughts), self._counts() if update.finish_reason else None
        shown = "".join(thinking) if thinking else None
        return Update(update.tokens, text, update.finish_reason, update.error, shown, logprobs, counts)

    def _counts(self) -> Counts:
        """Count the tokens of a finished request. Only the first of a prompt's choices counts the prompt's tokens."""
        request = self.request
        assert request is not None
        prompt, cached = (len(self.tokens), request.num_cached_tokens or 0) if self._is_first else (0, 0)
        thinking = sum(each is not None for each in self._all_thoughts)
        return Counts(prompt, len(request.output), cached, request.num_drafted, request.num_accepted, thinking)

    @property
    def _all_thoughts(self) -> Sequence[str | None]:
        text = self.request.text if self.request else None
        return text.thoughts if isinstance(text, ThinkingStream) else []

    def _logprobs(self, seen: slice, thoughts: Sequence[str | None]) -> list[Logprobs] | None:
        """Return the log-probabilities of the answer's new tokens; None if the client did not ask for them."""
        if self.request is None or self._body.num_logprobs is None:
            return None
        pairs = zip(self.request.logprobs[seen], thoughts, strict=False)
        return [logprobs for logprobs, thought in pairs if thought is None]
