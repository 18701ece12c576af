"""A request's text, separated from the thinking that precedes it. Given."""

from collections.abc import Sequence

from ..generate import Decoder
from ..thinking import Thoughts
from .request import TextStream

__all__ = ["ThinkingStream"]


class ThinkingStream(TextStream):
    """A text stream whose `text` is only the answer. Stop strings count only in the answer.

    thoughts: for each token of the output, the new text of the thinking, or None if the token belongs to the answer.
    This list only grows, so another thread may read the entries of all tokens that it knows of.
    """

    def __init__(self, tokenizer: Decoder, thoughts: Thoughts, stop: Sequence[str] = ()):
        super().__init__(tokenizer, stop)
        self.thoughts: list[str | None] = []
        self._taker = thoughts

    def add(self, token: int) -> None:
        """Add the text of the next token to the thinking or to the answer."""
        thought = self._taker.take(token)
        self.thoughts.append(thought)
        if thought is None:
            super().add(token)
