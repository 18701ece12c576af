"""Redzones around a thread's own arrays that the kernel uses through pointers. A checked run watches these redzones.

An array that the kernel only indexes needs no redzones, because the compiler's own instrumentation checks the index.
"""

from collections.abc import Callable, Sequence

from .declarations import Declaration, Variable, declaration
from .scopes import FUNCTION, KERNEL, scopes
from .tokens import Token, after_brackets, after_space, directives, tokenize

__all__ = ["Word", "private_arrays"]

Word = Callable[[Sequence[Token], int], str]

_NOT_OWN = {"const", "constexpr", "constant", "static", "volatile", "device", "threadgroup"}


def private_arrays(tokens: Sequence[Token], outermost: str, word: Word) -> dict[int, tuple[str, int]]:
    """Return the new text of each declaration that needs redzones, and the index at which the declaration ends.

    The keys are the indices of the declarations' first tokens. word: a function that rewrites one token of an initial
    value.
    """
    within = scopes(tokens, outermost)
    in_directive = directives(tokens)
    found = {}
    is_start = outermost == KERNEL  # whether a statement starts here
    for i, (kind, text) in enumerate(tokens):
        if kind == "space" or in_directive[i]:
            continue
        if is_start and kind == "word" and within[i] in (FUNCTION, KERNEL):
            known = declaration(tokens, i)
            if (
                known
                and not _NOT_OWN & known.qualifiers
                and any(_is_led_to(tokens, known.end, v) for v in known.variables)
            ):
                found[i] = (_redzoned(tokens, known, word), known.end)
        is_start = kind == "sign" and text in "{};"
    return found


def _redzoned(tokens: Sequence[Token], known: Declaration, word: Word) -> str:
    parts = []
    for variable in known.variables:
        name, dimensions, _ = variable
        inner = tokenize(variable.value)
        value = "".join(word(inner, i) for i in range(len(inner)))
        if not _is_led_to(tokens, known.end, variable):
            parts.append(f"{known.type} {name}{dimensions}{value};")
            continue
        guard = f"msl_redzoned_{name}"
        first = f" = {{{{}}, {value.lstrip('= ')}, {{}}}}" if value else ""
        parts.append(f"msl_redzoned<{known.type}{dimensions}> {guard}{first};")
        parts.append(f'const msl_watched<{known.type}{dimensions}> msl_watched_{name}({guard}, "{name}");')
        parts.append(f"auto& {name} = *msl_watched_{name}.array;")
    return " ".join(parts)


def _is_led_to(tokens: Sequence[Token], start: int, variable: Variable) -> bool:
    """Tell whether the text after an array's declaration takes an address in the array, or uses the array with fewer
    indices than the array has dimensions."""
    if not variable.dimensions or "[]" in variable.dimensions or ">" in variable.dimensions:  # not a template argument
        return False
    depth = _count(variable.dimensions)
    for i in range(start, len(tokens)):
        if tokens[i].text == variable.name and (_indices(tokens, i + 1) < depth or _is_address(tokens, i)):
            return True
    return False


def _count(dimensions: str) -> int:
    level = count = 0
    for letter in dimensions:
        count += letter == "[" and level == 0
        level += (letter == "[") - (letter == "]")
    return count


def _indices(tokens: Sequence[Token], i: int) -> int:
    count = 0
    i = after_space(tokens, i)
    while i < len(tokens) and tokens[i].text == "[":
        count += 1
        i = after_space(tokens, after_brackets(tokens, i))
    return count


def _is_address(tokens: Sequence[Token], i: int) -> bool:
    before = [token.text for token in tokens[max(0, i - 3) : i] if token.kind != "space"]
    return before[-1:] == ["&"] and before[-2:-1] not in (["&"], [")"], ["]"])
