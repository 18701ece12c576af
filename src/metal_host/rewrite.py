"""Rewrites what no header can: threadgroup variables, of which all threads of a threadgroup share one; numbers without
a suffix, which are float in Metal; const, where `constant` implies it; and a thread's own arrays, which get redzones.
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
    """A piece of the kernel's text as C++, line for line.

    outermost: what stands in no braces: KERNEL in a body, FILE in a header. word: what becomes of a single token.
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
    """Rewrite a token that is no part of something larger."""
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
    """Rewrite a line for the preprocessor, and tell where it ends; 0 if it stays as it is."""
    line = ""
    while i < len(tokens) and "\n" not in tokens[i].text:
        line += tokens[i].text
        i += 1
    if re.fullmatch(r"#\s*(include\s*<(metal_\w+|simd/simd\.h)>.*|pragma\s+(once|METAL|clang)\b.*)", line):
        return "", i  # is there anyway, or means nothing here
    if re.match(r"#\s*(include|import)\b", line):
        return '#error "there are no files to include: MLX compiles a string"', i
    return "", 0


def _attribute(tokens: Sequence[Token]) -> str:
    """Attributes mean nothing here, but for one that asks for what MLX cannot give."""
    asked = "function_constant " if any(token.text == "function_constant" for token in tokens) else ""
    return asked + _line_ends(tokens)


def _implies_const(tokens: Sequence[Token], i: int) -> bool:
    """Tell whether `constant` at i is all that says that a pointer or a reference leads to what does not change."""
    if "const" in [token.text for token in tokens[max(0, i - 2) : i]]:
        return False
    j = after_space(tokens, i + 1)
    while j < len(tokens) and (tokens[j].kind in ("word", "space") or tokens[j].text in ("::", "<")):
        if tokens[j].text in ("const", "constexpr"):
            return False
        j = after_brackets(tokens, j) if tokens[j].text == "<" else j + 1
    return j < len(tokens) and tokens[j].text in "*&"


def _line_ends(tokens: Sequence[Token]) -> str:
    """Return only the ends of the lines of what is left out, so that all lines keep their numbers."""
    found = ""
    for token in tokens:
        if token.kind == "space":
            found += (
                re.sub(r"[^\n\\]|\\(?!\n)", "", token.text)
                if token.text[:1].isspace()
                else "\n" * token.text.count("\n")
            )
    return found
