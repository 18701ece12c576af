"""Detects code that Metal forbids but C++ allows, from tokens alone. With clang, spaces.py detects more such code."""

from collections.abc import Iterator, Sequence

from .declarations import QUALIFIERS, SCALARS, SPACES, VECTORS, declaration
from .scopes import FILE, KERNEL, TYPE, scopes
from .tokens import Token, after_brackets, after_space, directives, tokenize

__all__ = ["violations"]

_SPACES = "device, constant, threadgroup or thread"
_BEFORE_TYPE = QUALIFIERS | {"inline", "METAL_FUNC", "typename", "struct", "unsigned", "signed", "metal", "::"}


def violations(source: str, outermost: str, before: str = "") -> Iterator[tuple[int, str]]:
    """Yield the line and the message of each violation.

    outermost: the scope outside of all braces, KERNEL for a body and FILE for a header. before: the text that
    precedes `source` and may name further types.
    """
    tokens = tokenize(source)
    in_directive = directives(tokens)
    within = scopes(tokens, outermost)
    types = SCALARS | VECTORS | _own_types(tokens) | _own_types(tokenize(before))
    if "if" not in {tokens[i + 1].text for i, token in enumerate(tokens[:-1]) if token.text == "#"}:
        yield from _brackets(tokens)
    line = 1
    for i, token in enumerate(tokens):
        if token.kind == "word" and not in_directive[i]:
            if token.text == "threadgroup" and (message := _threadgroup_variable(tokens, i, within[i])):
                yield line, message
            if token.text in types and (message := _no_space(tokens, i)):
                yield line, message
        line += token.text.count("\n")


def _brackets(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Yield the first unmatched bracket. A compiler would report the bracket many lines later, in text that we add."""
    open_: list[tuple[int, str]] = []
    line = 1
    for kind, text in tokens:
        if kind == "sign" and text in "([{":
            open_.append((line, text))
        if kind == "sign" and text in ")]}" and (not open_ or open_.pop()[1] + text not in ("()", "[]", "{}")):
            yield line, f"'{text}' has no partner"
            return
        line += text.count("\n")
    if open_:
        yield open_[-1][0], f"'{open_[-1][1]}' is never closed"


def _own_types(tokens: Sequence[Token]) -> set[str]:
    """Return the names of structs and of templates' type parameters."""
    plain = [token.text for token in tokens if token.kind != "space"]
    while "alignas" in plain:  # struct alignas(16) Name {
        start = plain.index("alignas")
        plain[start : plain.index(")", start) + 1 if ")" in plain[start:] else None] = []
    return {name for text, name, next_ in zip(plain, plain[1:], plain[2:], strict=False) if _names(text, next_)}


def _names(text: str, next_: str) -> bool:
    """Tell whether a word between these two tokens is the name of a type."""
    return (text == "struct" and next_ == "{") or (text in ("typename", "class") and next_ in (",", ">", "="))


def _threadgroup_variable(tokens: Sequence[Token], i: int, scope: str) -> str:
    if _is_in_parentheses(tokens, i):
        return ""
    declared = declaration(tokens, i)
    if declared is None:
        return ""
    name = declared.variables[0].name
    if scope != KERNEL:
        where = {FILE: "outside of functions", TYPE: "in a type"}.get(scope, "in a function that is not a kernel")
        return f"threadgroup variable '{name}' {where}: declare it in the kernel, and pass a threadgroup pointer"
    if valued := next((variable for variable in declared.variables if variable.value), None):
        problem = f"threadgroup variable '{valued.name}' with an initial value"
        return f"{problem}: let threads write the value, and add a barrier before the first read"
    return ""


def _is_in_parentheses(tokens: Sequence[Token], i: int) -> bool:
    before = next((token.text for token in reversed(tokens[:i]) if token.kind != "space"), ";")
    return before in ("(", ",", "<")


def _no_space(tokens: Sequence[Token], i: int) -> str:
    """Return a message if the type at token i begins a pointer or a reference without an address space; else, ""."""
    end = after_space(tokens, i + 1)
    if end < len(tokens) and tokens[end].text == "<":
        end = after_space(tokens, after_brackets(tokens, end))
    words = []
    while end < len(tokens) and tokens[end].text in QUALIFIERS:
        words.append(tokens[end].text)
        end = after_space(tokens, end + 1)
    if end >= len(tokens) or tokens[end].text not in ("*", "&"):
        return ""
    sign = tokens[end].text
    before = i - 1
    while before >= 0 and (tokens[before].kind == "space" or tokens[before].text in _BEFORE_TYPE):
        words.append(tokens[before].text)
        before -= 1
    after = after_space(tokens, end + 1)
    is_declared = after < len(tokens) and (tokens[after].kind == "word" or tokens[after].text == ")")
    if not is_declared or SPACES & set(words):
        return ""
    kind = "pointer" if sign == "*" else "reference"
    return f"{kind} without an address space: write {_SPACES} before {tokens[i].text}{sign}"
