"""What Metal forbids and C++ does not, as far as tokens can tell: spaces.py knows more, where there is a clang."""

from collections.abc import Iterator, Sequence

from .declarations import QUALIFIERS, SCALARS, SPACES, VECTORS, declaration
from .scopes import FILE, KERNEL, TYPE, scopes
from .tokens import Token, after_space, directives, tokenize

__all__ = ["violations"]

_SPACES = "device, constant, threadgroup or thread"
_BEFORE_TYPE = QUALIFIERS | {"inline", "METAL_FUNC", "typename", "struct", "unsigned", "signed", "metal", "::"}


def violations(source: str, outermost: str) -> Iterator[tuple[int, str]]:
    """Lines, and what is wrong there. outermost: what stands in no braces: KERNEL in a body, FILE in a header."""
    tokens = tokenize(source)
    in_directive = directives(tokens)
    within = scopes(tokens, outermost)
    types = SCALARS | VECTORS | _own_types(tokens)
    line = 1
    for i, token in enumerate(tokens):
        if token.kind == "word" and not in_directive[i]:
            if token.text == "threadgroup" and (said := _threadgroup_variable(tokens, i, within[i])):
                yield line, said
            if token.text in types and (said := _no_space(tokens, i)):
                yield line, said
        line += token.text.count("\n")


def _own_types(tokens: Sequence[Token]) -> set[str]:
    """Names of structs that are no templates."""
    plain = [token.text for token in tokens if token.kind != "space"]
    return {plain[i + 1] for i, text in enumerate(plain[:-2]) if text == "struct" and plain[i + 2] == "{"}


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
    """Whether the type at i is that of a pointer or a reference that has no address space."""
    behind = after_space(tokens, i + 1)
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
