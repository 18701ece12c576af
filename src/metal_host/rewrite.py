"""Rewrites the parts of Metal that no C++ header can define:

- Threadgroup variables, because all threads of a threadgroup share them.
- Floating-point numbers without a suffix, because they are float in Metal.
- `constant`, because it implies const.
- A thread's own arrays, because checked runs put redzones around them.
"""

import re
from collections.abc import Sequence

from .declarations import declaration
from .private import Word, private_arrays
from .tokens import Token, after_brackets, after_space, tokenize

__all__ = ["on_cpu", "rewrite"]

_FLOAT = re.compile(r"(?:\d[\d']*\.[\d']*|\.\d[\d']*|\d[\d']*(?=[eE]))(?:[eE][+-]?\d+)?|0[xX][\da-fA-F.]+[pP][+-]?\d+")
_SHORT = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(h|H|bf|BF)")


def rewrite(source: str, outermost: str, word: Word | None = None) -> str:
    """Rewrite a piece of the kernel's text as C++. All lines keep their numbers.

    outermost: the scope outside of all braces, KERNEL for a body and FILE for a header. word: a function that rewrites
    a single token.
    """
    tokens = tokenize(source)
    private = {} if word else private_arrays(tokens, outermost, on_cpu)
    out: list[str] = []
    i = depth = 0
    while i < len(tokens):
        kind, text = tokens[i]
        if text in "()" and kind == "sign":
            depth += 1 if text == "(" else -1
        directive, end = _directive(tokens, i) if text == "#" else ("", 0)
        if end:
            out.append(directive)
        elif text == "[" and i + 1 < len(tokens) and tokens[i + 1].text == "[":
            end = after_brackets(tokens, i)
            out.append(_attribute(tokens[i:end]))
        elif text == "threadgroup" and depth == 0 and (found := declaration(tokens, i)):
            end = found.end
            out += [f"MSL_THREADGROUP({v.name}, {found.type}{v.dimensions}) " for v in found.variables]
            out.append(_line_ends(tokens[i:end]))
        elif i in private:
            text, end = private[i]
            out += [text, _line_ends(tokens[i:end])]
        else:
            end = i + 1
            out.append((word or on_cpu)(tokens, i))
        i = end
    return "".join(out)


def on_cpu(tokens: Sequence[Token], i: int) -> str:
    """Rewrite a single token."""
    kind, text = tokens[i]
    if kind == "number":
        if _FLOAT.fullmatch(text):
            return f"{text}f"
        if short := _SHORT.fullmatch(text):
            number = short[1] if re.search(r"[.eE]", short[1]) else f"{short[1]}.0"
            return f"{'half' if short[2] in 'hH' else 'bfloat'}({number}f)"
    if text == "constant" and kind == "word" and _implies_const(tokens, i):
        return "const"
    return text


def _directive(tokens: Sequence[Token], i: int) -> tuple[str, int]:
    """Return the new text of a preprocessor directive, and the index after the directive. The index is 0 if the
    directive stays as it is."""
    line = ""
    while i < len(tokens) and "\n" not in tokens[i].text:
        line += tokens[i].text
        i += 1
    if re.fullmatch(r"#\s*(include\s*<(metal_\w+|simd/simd\.h)>.*|pragma\s+(once|METAL|clang)\b.*)", line):
        return "", i  # our headers replace the included file, or the pragma has no meaning on the CPU
    if re.match(r"#\s*(include|import)\b", line):
        return '#error "there are no files to include, because MLX compiles a string"', i
    return "", 0


def _attribute(tokens: Sequence[Token]) -> str:
    """Drop attributes, which have no meaning on the CPU, but keep `function_constant`, so that refused.h rejects it."""
    kept = "function_constant " if any(token.text == "function_constant" for token in tokens) else ""
    return kept + _line_ends(tokens)


def _implies_const(tokens: Sequence[Token], i: int) -> bool:
    """Tell whether `constant`, token i, is the only word that makes the target of a pointer or a reference const."""
    if "const" in [token.text for token in tokens[max(0, i - 2) : i]]:
        return False
    j = after_space(tokens, i + 1)
    while j < len(tokens) and (tokens[j].kind in ("word", "space") or tokens[j].text in ("::", "<")):
        if tokens[j].text in ("const", "constexpr"):
            return False
        j = after_brackets(tokens, j) if tokens[j].text == "<" else j + 1
    return j < len(tokens) and tokens[j].text in "*&"


def _line_ends(tokens: Sequence[Token]) -> str:
    """Return only the line ends of the dropped tokens, so that all later lines keep their numbers."""
    ends = ""
    for token in tokens:
        if token.kind == "space":
            ends += (
                re.sub(r"[^\n\\]|\\(?!\n)", "", token.text)
                if token.text[:1].isspace()
                else "\n" * token.text.count("\n")
            )
    return ends
