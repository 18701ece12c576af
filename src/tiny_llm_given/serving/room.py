"""Refuses prompts that cannot fit into the context, if possible before they are encoded. Given."""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Room", "TooLongError"]

_BEGINNING = 1 << 16  # characters of a long text that are encoded first
_SHRINKS = {"NoneType": 1, "NFC": 3}  # how many bytes a normaliser turns into one byte at most, keyed by normaliser


class TooLongError(ValueError):
    """The error raised when a prompt has more tokens than there is room for."""


class Room:
    """The room in a context. `Room` refuses a text that is too long, no matter how the tokenizer splits the text.

    max_length: how many tokens a prompt and its answer may have together; the answer needs at least one. Tokenizers
    that work on bytes, such as those of Qwen2 and Qwen3, limit how many bytes a token can stand for. If a text may fit,
    its beginnings are encoded first, so that a far too long text costs little more time than a text that fits.
    """

    def __init__(self, tokenizer: Any, max_length: int):
        self._max_length = max_length
        self._longest = _longest_token(tokenizer)

    def check_text(self, *parts: str) -> None:
        """Raise TooLongError if the text that consists of these parts cannot fit."""
        size = sum(len(part.encode()) for part in parts)
        if self._longest is not None and size > (self._max_length - 1) * self._longest:
            raise TooLongError(
                f"expected {self._max_length} tokens at most, of prompt and output, got a text of {size} bytes, which "
                f"has more: none of this model's tokens stands for more than {self._longest} bytes"
            )

    def encoded(self, encode: Callable[[str], Sequence[int]], text: str) -> list[int]:
        """Return the tokens of a text. Raises TooLongError once a beginning of the text has twice as many tokens as
        fit.

        The limit is doubled, because the beginning of a word may have more tokens than the whole word.
        """
        size = _BEGINNING
        while size < len(text):
            self.check_tokens(len(encode(text[:size])) // 2)
            size *= 2
        return list(encode(text))

    def check_tokens(self, count: int) -> None:
        """Raise TooLongError if there are too many tokens. count: the number of tokens so far."""
        if count >= self._max_length:
            raise TooLongError(
                f"expected {self._max_length} tokens at most, of prompt and output, got a prompt of {count} or more"
            )


def _longest_token(tokenizer: Any) -> int | None:
    """Return the largest number of bytes of text that a token can stand for. Return None if there is no limit."""
    backend, added = tokenizer.backend_tokenizer, list(tokenizer.added_tokens_decoder.values())
    shrinks = _SHRINKS.get(type(backend.normalizer).__name__)
    takes_blanks = any(token.lstrip or token.rstrip for token in added)  # such a token takes all blanks around it
    if shrinks is None or takes_blanks or type(backend.decoder).__name__ != "ByteLevel":
        return None
    names = max((len(str(token).encode()) for token in added), default=0)
    return shrinks * max(names, *map(len, tokenizer.get_vocab()))  # in a vocabulary's names, a character is one byte
