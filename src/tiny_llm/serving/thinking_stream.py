"""A request's text, and apart from it what the model thinks before. Given."""

from collections.abc import Sequence

from ..generate import Decoder
from ..thinking import Thoughts
from .request import TextStream

__all__ = ["ThinkingStream"]


class ThinkingStream(TextStream):
    """A text stream whose `text` is the answer alone. Stop strings are found in the answer alone.

    thoughts: for each token of the output, the new text of the thinking, or None where the token is the answer's. The
    list only grows, so that another thread may read what belongs to the tokens that it knows of.
    """

    def __init__(self, tokenizer: Decoder, thoughts: Thoughts, stop: Sequence[str] = ()):
        super().__init__(tokenizer, stop)
        self.thoughts: list[str | None] = []
        self._taker = thoughts

    def add(self, token: int) -> None:
        """Take the next token."""
        thought = self._taker.take(token)
        self.thoughts.append(thought)
        if thought is None:
            super().add(token)
