"""Recognises declarations of variables from tokens alone."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from .tokens import Token, after_brackets, after_space

__all__ = ["QUALIFIERS", "SCALARS", "SPACES", "VECTORS", "Declaration", "Variable", "declaration"]

SPACES = frozenset({"device", "constant", "thread", "threadgroup"})
QUALIFIERS = SPACES | {"const", "volatile", "static", "constexpr"}
_PARTS = frozenset({"unsigned", "signed", "int", "short", "long", "char", "float", "half", "bool"})
_SIZED = {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_SHORT = {"char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "bfloat", "float", "bool"}
SCALARS = frozenset(_PARTS | _SHORT | _SIZED | {"size_t", "float16_t", "bfloat16_t"})
VECTORS = frozenset(f"{packed}{scalar}{n}" for packed in ("", "packed_") for scalar in _SHORT for n in (2, 3, 4))
_WORDS = """return else do case default goto break continue typedef using new delete throw if for while switch struct
class union enum template namespace operator public private protected friend"""
_NO_TYPES = frozenset(re.findall(r"\w+", _WORDS))


class Variable(NamedTuple):
    name: str
    dimensions: str  # such as [4][8]
    value: str  # the initialiser with its "=", or ""


class Declaration(NamedTuple):
    """A declaration of one or more variables. type: without qualifiers. end: the index after the semicolon."""

    type: str
    qualifiers: frozenset[str]
    variables: list[Variable]
    end: int


def declaration(tokens: Sequence[Token], i: int) -> Declaration | None:
    """Read the declaration `T name[n] = value, ...;` that begins at token i. Return None if something else begins
    there, such as the declaration of a pointer or reference."""
    type_, qualifiers, i = _type(tokens, i)
    variables: list[Variable] = []
    while type_:
        i = after_space(tokens, i)
        if i >= len(tokens) or tokens[i].kind != "word":
            break
        name, start = tokens[i].text, i + 1
        i = after_space(tokens, i + 1)
        while i < len(tokens) and tokens[i].text == "[":
            i = after_space(tokens, after_brackets(tokens, i))
        dimensions = "".join(token.text for token in tokens[start:i] if token.kind != "space")
        start = i
        if i < len(tokens) and tokens[i].text in ("=", "{"):
            i = _after_value(tokens, i)
        variables.append(Variable(name, dimensions, _in_one_line(tokens[start:i])))
        if i >= len(tokens) or tokens[i].text not in ",;":
            break
        if tokens[i].text == ";":
            return Declaration(type_, qualifiers, variables, i + 1)
        i += 1
    return None


def _in_one_line(tokens: Sequence[Token]) -> str:
    return "".join(" " if token.kind == "space" else token.text for token in tokens)


def _after_value(tokens: Sequence[Token], i: int) -> int:
    while i < len(tokens) and tokens[i].text not in (",", ";"):
        i = after_brackets(tokens, i) if tokens[i].text in ("(", "[", "{") else i + 1
    return i


def _type(tokens: Sequence[Token], i: int) -> tuple[str, frozenset[str], int]:
    """Return the type that begins at token i ("" if none begins there), the type's qualifiers, and the index after the
    type."""
    words: list[str] = []
    qualifiers: set[str] = set()
    is_whole = False
    while (i := after_space(tokens, i)) < len(tokens):
        kind, text = tokens[i]
        if text == "<" and is_whole:
            end = after_brackets(tokens, i)
            words.append(_in_one_line(tokens[i:end]))
            i = end
            continue
        if text == "alignas" and qualifiers & SPACES:  # the runtime aligns its memory anyway
            i = after_brackets(tokens, after_space(tokens, i + 1))
            continue
        if kind == "word" and text in QUALIFIERS:
            qualifiers.add(text)
        elif kind == "word" and text == "typename":
            words.append("typename ")
        elif text == "::":
            words.append(text)
            is_whole = False
        elif kind == "word" and (not is_whole or (text in _PARTS and words[-1].strip() in _PARTS)):
            if text in _NO_TYPES:
                return "", frozenset(), i
            words.append(f"{text} " if text in _PARTS else text)
            is_whole = True
        else:
            break
        i += 1
    return "".join(words).strip() if is_whole else "", frozenset(qualifiers), i
