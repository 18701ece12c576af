"""From a kernel's Metal source to C++ that the machine's compiler takes.

Nearly all of the language is the business of the headers in include/. Here is what no header can do: threadgroup
variables, of which all threads of a threadgroup share one; numbers without a suffix, which are float in Metal; const,
where `constant` implies it; and swizzles, of which a vector gets those that the kernel uses.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from .signature import ATTRIBUTES, Parameter, Signature
from .tokens import Token, after_brackets, after_space, tokenize

__all__ = ["Program", "rewrite", "write_program"]

_FLOAT = re.compile(r"(?:\d[\d']*\.[\d']*|\.\d[\d']*|\d[\d']*(?=[eE]))(?:[eE][+-]?\d+)?|0[xX][\da-fA-F.]+[pP][+-]?\d+")
_SHORT = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(h|H|bf|BF)")
_QUALIFIERS = {"const", "volatile", "device", "constant", "thread", "threadgroup", "static", "constexpr"}
_SCALARS = {"unsigned", "signed", "int", "short", "long", "char", "float", "half", "bool"}
_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")


class Program(NamedTuple):
    """C++, and the texts of which its lines come, under the names that messages use."""

    cpp: str
    texts: dict[str, str]


class _Variables(NamedTuple):
    """A declaration of threadgroup variables, and where it ends."""

    type: str
    names: list[tuple[str, str]]  # and dimensions
    end: int


def write_program(name: str, signature: Signature, header: str, source: str) -> Program:
    """C++ with msl_kernel_entry, which calls the kernel for one thread."""
    plain = re.sub(r"[^\w.-]", "_", name)
    texts = {f"{plain}.metal": source, f"{plain}.header.metal": header}
    body, before = texts
    parameters = [f"{p.declaration.replace('constant ', '').replace('device ', '')}" for p in signature.parameters]
    parameters += [f"{ATTRIBUTES[a][0]} {a}" for a in signature.attributes]
    cpp = f"""{_swizzles(header + source)}#include "msl.h"
using namespace metal;
#line 1 "{before}"
{rewrite(header)}
#line 1 "signature"
{signature.template_line}static void msl_kernel({", ".join(parameters)}) {{
#line 1 "{body}"
{rewrite(source)}
}}
#line 1 "entry"
{_entry(signature)}"""
    return Program(cpp, texts)


def _entry(signature: Signature) -> str:
    arguments = [_argument(p, i) for i, p in enumerate(signature.parameters)]
    for attribute in signature.attributes:
        kind, where = ATTRIBUTES[attribute]
        if kind == "uint3":
            arguments.append(f"uint3({where}[0], {where}[1], {where}[2])" if where else "uint3(0u)")
        else:
            arguments.append(f"uint({where})")
    call = f"msl_kernel{signature.template_values}({', '.join(arguments)})"
    ours = 'extern "C" __attribute__((no_sanitize("thread")))'
    return f"{ours} void msl_kernel_entry(void** b, const msl_thread* t) {{ {call}; }}\n"


def _argument(parameter: Parameter, index: int) -> str:
    const = "" if parameter.is_output else "const "
    return f"{'*' if parameter.is_reference else ''}({const}{parameter.type}*)b[{index}]"


def rewrite(source: str) -> str:
    """A piece of the kernel's text as C++, line for line."""
    tokens = tokenize(source)
    out: list[str] = []
    i = depth = 0
    while i < len(tokens):
        kind, text = tokens[i]
        if text in "()" and kind == "sign":
            depth += 1 if text == "(" else -1
        directive, end = _directive(tokens, i) if text == "#" else ("", 0)
        if end:
            out.append(directive)
            i = end
        elif text == "[" and i + 1 < len(tokens) and tokens[i + 1].text == "[":
            end = after_brackets(tokens, i)
            out.append(_attribute(tokens[i:end]))
            i = end
        elif text == "threadgroup" and depth == 0 and (found := _threadgroup_variables(tokens, i + 1)):
            out += [f"MSL_THREADGROUP({name}, {found.type}{dimensions}) " for name, dimensions in found.names]
            out.append(_line_ends(tokens[i : found.end]))
            i = found.end
        else:
            out.append(_one_token(tokens, i))
            i += 1
    return "".join(out)


def _one_token(tokens: Sequence[Token], i: int) -> str:
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
    """What becomes of a line for the preprocessor, and where it ends; 0 if it stays as it is."""
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
    """Whether `constant` at i is all that says that a pointer or a reference leads to what does not change."""
    if "const" in [token.text for token in tokens[max(0, i - 2) : i]]:
        return False
    j = after_space(tokens, i + 1)
    while j < len(tokens) and (tokens[j].kind in ("word", "space") or tokens[j].text in ("::", "<")):
        if tokens[j].text in ("const", "constexpr"):
            return False
        j = after_brackets(tokens, j) if tokens[j].text == "<" else j + 1
    return j < len(tokens) and tokens[j].text in "*&"


def _threadgroup_variables(tokens: Sequence[Token], i: int) -> _Variables | None:
    """What `T name[n], ...;` behind `threadgroup` declares; nothing where that is a pointer's or a reference's type."""
    kind, i = _type(tokens, i)
    names: list[tuple[str, str]] = []
    while kind:
        i = after_space(tokens, i)
        if i >= len(tokens) or tokens[i].kind != "word":
            break
        name, i = tokens[i].text, after_space(tokens, i + 1)
        start = i
        while i < len(tokens) and tokens[i].text == "[":
            i = after_space(tokens, after_brackets(tokens, i))
        names.append((name, "".join(token.text for token in tokens[start:i] if token.kind != "space")))
        if i >= len(tokens) or tokens[i].text not in ",;":
            break
        if tokens[i].text == ";":
            return _Variables(kind, names, i + 1)
        i += 1
    return None


def _type(tokens: Sequence[Token], i: int) -> tuple[str, int]:
    """The type that begins at i, without its qualifiers, and where it ends."""
    words: list[str] = []
    is_whole = False
    while (i := after_space(tokens, i)) < len(tokens):
        kind, text = tokens[i]
        if text == "<" and is_whole:
            end = after_brackets(tokens, i)
            words.append("".join(token.text for token in tokens[i:end]))
            i = end
            continue
        if kind == "word" and text == "typename":
            words.append("typename ")
        elif text == "::":
            words.append(text)
            is_whole = False
        elif kind == "word" and (not is_whole or (text in _SCALARS and words[-1].strip() in _SCALARS)):
            if text not in _QUALIFIERS:
                words.append(f"{text} " if text in _SCALARS else text)
                is_whole = True
        elif not (kind == "word" and text in _QUALIFIERS):
            break
        i += 1
    return "".join(words).strip() if is_whole else "", i


def _line_ends(tokens: Sequence[Token]) -> str:
    """Only the ends of the lines of what is left out, so that all lines keep their numbers."""
    found = ""
    for token in tokens:
        if token.kind == "space":
            found += (
                re.sub(r"[^\n\\]|\\(?!\n)", "", token.text)
                if token.text[:1].isspace()
                else "\n" * token.text.count("\n")
            )
    return found


def _swizzles(source: str) -> str:
    """Definitions for include/msl/vector.h."""
    tokens = [token for token in tokenize(source) if token.kind != "space"]
    used = {b.text for a, b in pairwise(tokens) if a.text == "." and _SWIZZLE.fullmatch(b.text)}
    lines = []
    for size in (2, 3, 4):
        entries = []
        for name in sorted(used):
            letters = "xyzw" if name[0] in "xyzw" else "rgba"
            if all(letter in letters[:size] for letter in name):
                entries.append(f"MSL_SWIZZLE({name}, {', '.join(str(letters.index(letter)) for letter in name)})")
        lines.append(f"#define MSL_SWIZZLES_{size} {' '.join(entries)}\n")
    return "".join(lines)
