"""From a kernel's Metal source to C++ that the machine's compiler takes.

Nearly all of the language is the business of the headers in include/. Here is what no header can do: threadgroup
variables, of which all threads of a threadgroup share one; numbers without a suffix, which are float in Metal; const,
where `constant` implies it; and swizzles, of which a vector gets those that the kernel uses.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from .declarations import declaration
from .diagnostics import listed
from .errors import MetalCompileError
from .private import private_arrays
from .rules import violations
from .scopes import FILE, KERNEL
from .signature import ATTRIBUTES, Parameter, Signature
from .tokens import Token, after_brackets, after_space, tokenize

__all__ = ["Program", "rewrite", "write_program"]

_FLOAT = re.compile(r"(?:\d[\d']*\.[\d']*|\.\d[\d']*|\d[\d']*(?=[eE]))(?:[eE][+-]?\d+)?|0[xX][\da-fA-F.]+[pP][+-]?\d+")
_SHORT = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(h|H|bf|BF)")
_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")


_Word = Callable[[Sequence[Token], int], str]


class Program(NamedTuple):
    """C++, and the texts of which its lines come, under the names that messages use."""

    cpp: str
    texts: dict[str, str]


@lru_cache(256)
def write_program(name: str, signature: Signature, header: str, source: str) -> Program:
    """C++ with msl_kernel_entry, which calls the kernel for one thread.

    Raises:
        MetalCompileError: Metal forbids something that C++ does not.
    """
    plain = re.sub(r"[^\w.-]", "_", name)
    texts = {f"{plain}.metal": source, f"{plain}.header.metal": header}
    body, before = texts
    _check(name, texts, {before: FILE, body: KERNEL})
    parameters = [f"{p.declaration.replace('constant ', '').replace('device ', '')}" for p in signature.parameters]
    parameters += [f"{ATTRIBUTES[a][0]} {a}" for a in signature.attributes]
    cpp = f"""{_swizzles(header + source)}#include "msl.h"
using namespace metal;
#line 1 "{before}"
{rewrite(header, FILE)}
#line 1 "signature"
{signature.template_line}static void msl_kernel({", ".join(parameters)}) {{
#line 1 "{body}"
{rewrite(source, KERNEL)}
}}
#line 1 "entry"
{_entry(signature)}"""
    return Program(cpp, texts)


def _check(name: str, texts: Mapping[str, str], outermost: Mapping[str, str]) -> None:
    found = {(file, line): said for file, kind in outermost.items() for line, said in violations(texts[file], kind)}
    if found:
        raise MetalCompileError(f"kernel '{name}' does not compile:\n{listed(found, texts)}")


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


def rewrite(source: str, outermost: str, word: _Word | None = None) -> str:
    """A piece of the kernel's text as C++, line for line.

    outermost: what stands in no braces: KERNEL in a body, FILE in a header. word: what becomes of a single token.
    """
    tokens = tokenize(source)
    private = {} if word else private_arrays(tokens, outermost)
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
            out.append((word or _one_token)(tokens, i))
        i = end
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
