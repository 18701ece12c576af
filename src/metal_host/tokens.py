"""Tokens of Metal source. Joined together, the tokens are the source again."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

__all__ = ["Token", "after_brackets", "after_space", "directives", "tokenize"]

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\\\n)+|//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
      | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign>::|.)""",
    re.VERBOSE | re.DOTALL,
)
_OPENING, _CLOSING = "([{<", ")]}>"


class Token(NamedTuple):
    kind: str  # space (with comments), string, number, word or sign
    text: str


@lru_cache(16)  # several passes read the same header
def tokenize(source: str) -> tuple[Token, ...]:
    return tuple(Token(str(match.lastgroup), match.group()) for match in _TOKEN.finditer(source))


def after_space(tokens: Sequence[Token], i: int) -> int:
    """Skip space: return the index of the first token at or after token i that is not space. If only space is left,
    return the number of tokens."""
    while i < len(tokens) and tokens[i].kind == "space":
        i += 1
    return i


def after_brackets(tokens: Sequence[Token], i: int) -> int:
    """Return the index after the bracket that closes the bracket at token i. Return the number of tokens if there is no
    such bracket."""
    opening = tokens[i].text
    closing = _CLOSING[_OPENING.index(opening)]
    depth = 0
    while i < len(tokens):
        depth += (tokens[i].text == opening) - (tokens[i].text == closing)
        i += 1
        if depth == 0:
            break
    return i


def directives(tokens: Sequence[Token]) -> list[bool]:
    """Tell, for each token, whether it is part of a preprocessor directive."""
    found = []
    is_directive = False
    is_start = True  # whether a line starts here
    for kind, text in tokens:
        if kind == "space":
            if "\n" in text.replace("\\\n", ""):
                is_directive, is_start = False, True
        else:
            is_directive = is_directive or (text == "#" and is_start)
            is_start = False
        found.append(is_directive)
    return found
