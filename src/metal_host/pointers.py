"""Detects pointers to the wrong address space from tokens alone, for machines without clang.

A pointer's address space is compared with the address space of the variable whose address the pointer receives: in an
initialisation, an assignment, a cast, or a call of a function in the kernel's header. This module accepts every
expression that it does not understand. With clang, spaces.py finds more errors.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .declarations import QUALIFIERS, SPACES, declaration
from .scopes import FILE, FUNCTION, KERNEL, scopes
from .tokens import Token, after_brackets, directives, tokenize

__all__ = ["mixed_pointers"]

_Known = dict[str, str]  # name of a variable -> its address space, or "" if unknown
_ENDS = {";", ",", ")", "{"}


class _Pointer(NamedTuple):
    """A pointer or reference in a declaration or a cast.

    name: "" for a cast. sign: `*` or `&`. end: the index of the token after the pointer or reference.
    """

    space: str
    sign: str
    name: str
    end: int


def mixed_pointers(
    source: str, outermost: str, given: Iterable[str] = (), header: str = ""
) -> Iterator[tuple[int, str]]:
    """Yield the line and the message of each error.

    outermost: the scope outside of all braces, as in rules.py. given: declarations of the kernel's parameters. header:
    text that defines functions.
    """
    tokens, lines = _without_space(source)
    within = scopes(tokens, outermost)
    functions = _functions(header if outermost == KERNEL else source)
    known = [{pointer.name: pointer.space for text in given if (pointer := _declared(text))}]
    waiting: _Known = {}  # parameters, until the body of their function begins
    depth = 0
    for i, (_, text) in enumerate(tokens):
        depth += (text in "([") - (text in ")]") if len(text) == 1 else 0
        if text == "{":
            known.append(waiting)
            waiting = {}
        elif text == "}" and len(known) > 1:
            known.pop()
        elif text == ";" and depth == 0:
            waiting = {}
        scope = waiting if depth else known[-1]
        names = {name: space for one in (*known, waiting) for name, space in one.items()}
        if text in SPACES and not _is_qualified(tokens, i) and (pointer := _pointer(tokens, i)):
            if pointer.name:
                scope[pointer.name] = pointer.space if pointer.sign == "*" else ""
            is_set = tokens[pointer.end : pointer.end + 1] and tokens[pointer.end].text == "="
            start = pointer.end + 1 if pointer.name and is_set else pointer.end
            if (not pointer.name or is_set) and (message := _mixed(tokens, start, pointer, names)):
                yield lines[i], message
        elif declared := _variables(tokens, i, within[i]):
            if misplaced := declared.pop("", ""):
                yield lines[i], misplaced
            scope.update(declared)
        elif (kind := names.get(text)) and _is_set(tokens, i):
            if message := _mixed(tokens, i + 2, _Pointer(kind, "*", text, i + 2), names):
                yield lines[i], message
        elif text in functions and i + 1 < len(tokens) and tokens[i + 1].text == "(":
            for message in _arguments(tokens, i + 1, text, functions[text], names):
                yield lines[i], message


def _without_space(source: str) -> tuple[list[Token], list[int]]:
    """Return the tokens without spaces and directives, and the line number of each token."""
    tokens, lines, line = [], [], 1
    all_tokens = tokenize(source)
    for token, is_directive in zip(all_tokens, directives(all_tokens), strict=True):
        if token.kind != "space" and not is_directive:
            tokens.append(token)
            lines.append(line)
        line += token.text.count("\n")
    return tokens, lines


def _is_qualified(tokens: Sequence[Token], i: int) -> bool:
    """Tell whether token i, an address space, follows another address space, or qualifies a method's object."""
    before = tokens[i - 1].text if i else ";"
    return before in SPACES or before == ")"


def _pointer(tokens: Sequence[Token], i: int) -> _Pointer | None:
    """Read the declaration `device T* name` or the cast `(device T*)` whose address space is token i. The word
    `const` may precede the address space."""
    space, start = tokens[i].text, i
    while start and tokens[start - 1].text in QUALIFIERS:
        start -= 1
    i += 1
    while i < len(tokens) and (tokens[i].kind == "word" or tokens[i].text in ("::", "<")):
        if tokens[i].text in SPACES:
            return None
        i = after_brackets(tokens, i) if tokens[i].text == "<" else i + 1
    if i >= len(tokens) or tokens[i].text not in ("*", "&"):
        return None
    sign = tokens[i].text
    i += 1
    while i < len(tokens) and tokens[i].text in QUALIFIERS:
        i += 1
    if i >= len(tokens):
        return None
    if tokens[i].text == ")" and start and tokens[start - 1].text == "(":
        return _Pointer(space, sign, "", i + 1)
    is_name = tokens[i].kind == "word" and i + 1 < len(tokens) and tokens[i + 1].text in ("=", *_ENDS, "[")
    return _Pointer(space, sign, tokens[i].text, i + 1) if is_name else None


def _declared(text: str) -> _Pointer | None:
    """Read the declaration of a parameter. Return None if the parameter is not a pointer."""
    tokens, _ = _without_space(f"{text.partition('[[')[0]};")
    place = next((i for i, token in enumerate(tokens) if token.text in SPACES), None)
    pointer = None if place is None else _pointer(tokens, place)
    return pointer if pointer and pointer.sign == "*" else None


def _variables(tokens: Sequence[Token], i: int, scope: str) -> _Known:
    """Return the address spaces of the variables that the declaration at token i declares, keyed by name. Pointers are
    left out.

    An array has the address space of its declaration. For any other variable, the address space is "": the variable is
    returned only because it hides an outer variable of the same name. If the declaration has an error, the error's
    message is returned under the key "".
    """
    before = tokens[i - 1].text if i else ";"
    if scope not in (KERNEL, FUNCTION, FILE) or before not in (";", "{", "}", "(", ")"):
        return {}
    if tokens[i].text == "auto":
        return {token.text: "" for token in tokens[i + 1 : i + 3] if token.kind == "word"}
    declared = declaration(tokens, i)
    if declared is None:
        return {}
    spaces = declared.qualifiers & SPACES or {"constant" if scope == FILE else "thread"}
    space = next(iter(spaces))
    known = {variable.name: space if variable.dimensions else "" for variable in declared.variables}
    if scope != FILE and space in ("device", "constant"):
        name = declared.variables[0].name
        known[""] = f"variable '{name}' is declared {space}: a kernel reaches {space} memory only through pointers"
    return known


def _is_set(tokens: Sequence[Token], i: int) -> bool:
    """Tell whether a statement assigns to the name at token i: `p = ...;`."""
    before = tokens[i - 1].text if i else ";"
    is_equal = [token.text for token in tokens[i + 1 : i + 3]]
    return before in (";", "{", "}", ")", "else") and is_equal[:1] == ["="] and is_equal[1:] != ["="]


def _mixed(tokens: Sequence[Token], i: int, pointer: _Pointer, known: Mapping[str, str]) -> str:
    """Return a message if the expression at token i and the pointer that receives it differ in their address spaces."""
    name, other = _of(tokens, i, pointer, known)
    if not other or other == pointer.space:
        return ""
    kind = "a pointer" if pointer.sign == "*" else "a reference"
    return f"'{name}' is in {other} memory: {kind} to it is declared {other}, not {pointer.space}"


def _of(tokens: Sequence[Token], i: int, pointer: _Pointer, known: Mapping[str, str]) -> tuple[str, str]:
    """Return the name at token i, and the address space of the expression there, or "" for an expression other than
    `x`, `x + n` or `&x[n]`."""
    is_address = i < len(tokens) and tokens[i].text == "&"
    i += is_address
    if i >= len(tokens) or tokens[i].kind != "word":
        return "", ""
    name, i = tokens[i].text, i + 1
    is_element = i < len(tokens) and tokens[i].text == "["
    while i < len(tokens) and tokens[i].text == "[":
        i = after_brackets(tokens, i)
    after = tokens[i].text if i < len(tokens) else ";"
    if pointer.sign == "&" or is_address:
        is_plain = is_element and after in _ENDS
    else:
        is_member = [token.text for token in tokens[i : i + 2]] == ["-", ">"]
        is_cast = not pointer.name and after != "."  # a cast applies to the name alone
        is_plain = not is_element and not is_member and (is_cast or after in (*_ENDS, "+", "-"))
    return name, known.get(name, "") if is_plain else ""


def _functions(header: str) -> dict[str, list[str]]:
    """For each function that a header defines once, return its parameters' address spaces, keyed by function name.

    For a parameter that is not a pointer, the address space is "".
    """
    tokens, _ = _without_space(header)
    within = scopes(tokens, FILE)
    functions: dict[str, list[str]] = {}
    twice: set[str] = set()
    for i, token in enumerate(tokens):
        if token.text != "(" or not i or tokens[i - 1].kind != "word" or within[i] != FILE:
            continue
        end = after_brackets(tokens, i)
        if end < len(tokens) and tokens[end].text in ("{", ";"):
            name = tokens[i - 1].text
            twice |= {name} if name in functions else set()
            functions[name] = [_space_of(tokens[start:stop]) for start, stop in _parts(tokens, i, end)]
    return {name: spaces for name, spaces in functions.items() if name not in twice}


def _space_of(parameter: Sequence[Token]) -> str:
    pointer = _declared(" ".join(token.text for token in parameter))
    return pointer.space if pointer else ""


def _parts(tokens: Sequence[Token], opening: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the first index of each part between the commas in a pair of brackets, and the index after the part."""
    start = i = opening + 1
    while i < end - 1:
        if tokens[i].text in ("(", "[", "{"):
            i = after_brackets(tokens, i)
            continue
        if tokens[i].text == ",":
            yield start, i
            start = i + 1
        i += 1
    if start < end - 1:
        yield start, end - 1


def _arguments(
    tokens: Sequence[Token], opening: int, function: str, spaces: Sequence[str], known: Mapping[str, str]
) -> Iterator[str]:
    for (start, _), space in zip(_parts(tokens, opening, after_brackets(tokens, opening)), spaces, strict=False):
        name, other = _of(tokens, start, _Pointer(space, "*", function, start), known)
        if space and other and other != space:
            yield f"'{name}' is in {other} memory, and '{function}' takes a {space} pointer"
