"""Scopes: the kind of each pair of braces in a piece of source, found from tokens alone."""

from collections.abc import Sequence

from .tokens import Token

__all__ = ["FILE", "FUNCTION", "KERNEL", "TYPE", "VALUE", "scopes"]

FILE, TYPE, FUNCTION, KERNEL, VALUE = "file", "type", "function", "kernel", "value"

_TYPES = {"struct", "class", "union", "enum"}
_AFTER_PARAMETERS = {"const", "thread", "device", "constant", "threadgroup", "noexcept", "override"}


def scopes(tokens: Sequence[Token], outermost: str) -> list[str]:
    """Return, for each token, the kind of the innermost braces around the token. The braces of a namespace do not
    count.

    outermost: the kind for tokens outside of all braces.
    """
    kinds: list[str] = []
    stack = [outermost]
    words: list[str] = []  # of the statement so far, without the words in parentheses
    depth = 0
    for kind, text in tokens:
        if text == "{" and kind == "sign":
            kinds.append(stack[-1])
            stack.append(VALUE if depth else _kind(words, stack[-1]))
            words = []
            continue
        if text == "}" and kind == "sign":
            words = ["="] if stack[-1] == VALUE else []  # after a value, the statement goes on
            if len(stack) > 1:
                stack.pop()
            kinds.append(stack[-1])
            continue
        kinds.append(stack[-1])
        if kind == "space":
            continue
        if text in ("(", ")") and kind == "sign":
            depth = max(0, depth + (1 if text == "(" else -1))
        if text == ";" and depth == 0:
            words = []
        elif depth == 0:
            words.append(text)
    return kinds


def _kind(words: list[str], around: str) -> str:
    """Return the kind of the brace that follows these words of a statement."""
    last = len(words)
    while last and words[last - 1] in _AFTER_PARAMETERS:
        last -= 1
    is_after_parameters = last > 0 and words[last - 1] == ")"
    if around == VALUE or words[-1:] == ["="]:
        return VALUE
    if around in (FUNCTION, KERNEL):
        is_block = not words or is_after_parameters or words[-1] in ("else", "do", ":", "->")
        return around if is_block else TYPE if _TYPES & set(words) else VALUE
    if is_after_parameters:
        return KERNEL if "kernel" in words else FUNCTION
    if "namespace" in words or words[:1] == ["extern"]:
        return FILE
    return TYPE if _TYPES & set(words) else VALUE
