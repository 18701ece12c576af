"""What Metal forbids and C++ does not, as far as tokens can tell: spaces.py knows more, where there is a clang."""

from collections.abc import Iterator, Sequence

from .declarations import QUALIFIERS, SCALARS, SPACES, VECTORS, declaration
from .scopes import FILE, KERNEL, TYPE, scopes
from .tokens import Token, after_brackets, after_space, directives, tokenize

__all__ = ["violations"]

_SPACES = "device, constant, threadgroup or thread"
_BEFORE_TYPE = QUALIFIERS | {"inline", "METAL_FUNC", "typename", "struct", "unsigned", "signed", "metal", "::"}


def violations(source: str, outermost: str, before: str = "") -> Iterator[tuple[int, str]]:
    """Lines, and what is wrong there.

    outermost: what stands in no braces: KERNEL in a body, FILE in a header. before: text that names further types.
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
            if token.text == "threadgroup" and (said := _threadgroup_variable(tokens, i, within[i])):
                yield line, said
            if token.text in types and (said := _no_space(tokens, i)):
                yield line, said
        line += token.text.count("\n")


def _brackets(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """The first one without a partner. A compiler finds that out far behind it, where our text begins."""
    open_: list[tuple[int, str]] = []
    line = 1
    for kind, text in tokens:
        if kind == "sign" and text in "([{":
            open_.append((line, text))
        if kind == "sign" and text in ")]}" and (not open_ or open_.pop()[1] + text not in ("()", "[]", "{}")):
            yield line, f"'{text}' without its partner"
            return
        line += text.count("\n")
    if open_:
        yield open_[-1][0], f"'{open_[-1][1]}' that is never closed"


def _own_types(tokens: Sequence[Token]) -> set[str]:
    """Names of structs and of types that are a template's parameters."""
    plain = [token.text for token in tokens if token.kind != "space"]
    while "alignas" in plain:  # struct alignas(16) Name {
        start = plain.index("alignas")
        plain[start : plain.index(")", start) + 1 if ")" in plain[start:] else None] = []
    return {name for text, name, next_ in zip(plain, plain[1:], plain[2:], strict=False) if _names(text, next_)}


def _names(text: str, next_: str) -> bool:
    """Tell whether a type's name is between the two."""
    return (text == "struct" and next_ == "{") or (text in ("typename", "class") and next_ in (",", ">", "="))


def _threadgroup_variable(tokens: Sequence[Token], i: int, scope: str) -> str:
    if _is_in_parentheses(tokens, i):
        return ""
    found = declaration(tokens, i)
    if found is None:
        return ""
    name = found.variables[0].name
    if scope != KERNEL:
        where = {FILE: "outside of functions", TYPE: "in a type"}.get(scope, "in a function that is no kernel")
        return f"threadgroup variable '{name}' {where}: declare it in the kernel, and hand in a threadgroup pointer"
    if valued := next((variable for variable in found.variables if variable.value), None):
        return f"threadgroup variable '{valued.name}' with an initial value: let threads write it, and then a barrier"
    return ""


def _is_in_parentheses(tokens: Sequence[Token], i: int) -> bool:
    before = next((token.text for token in reversed(tokens[:i]) if token.kind != "space"), ";")
    return before in ("(", ",", "<")


def _no_space(tokens: Sequence[Token], i: int) -> str:
    """Tell whether the type at i is that of a pointer or a reference that has no address space."""
    behind = after_space(tokens, i + 1)
    if behind < len(tokens) and tokens[behind].text == "<":
        behind = after_space(tokens, after_brackets(tokens, behind))
    words = []
    while behind < len(tokens) and tokens[behind].text in QUALIFIERS:
        words.append(tokens[behind].text)
        behind = after_space(tokens, behind + 1)
    if behind >= len(tokens) or tokens[behind].text not in ("*", "&"):
        return ""
    sign = tokens[behind].text
    before = i - 1
    while before >= 0 and (tokens[before].kind == "space" or tokens[before].text in _BEFORE_TYPE):
        words.append(tokens[before].text)
        before -= 1
    after = after_space(tokens, behind + 1)
    is_declared = after < len(tokens) and (tokens[after].kind == "word" or tokens[after].text == ")")
    if not is_declared or SPACES & set(words):
        return ""
    return f"{'pointer' if sign == '*' else 'reference'} without an address space: {_SPACES} {tokens[i].text}{sign}"
