"""Translation of a kernel's Metal source to C++ that the machine's compiler accepts.

The headers in include/ define nearly all of the language, and rewrite.py rewrites the parts that no header can define.
A second version of the text has real address spaces, which clang can check (spaces.py).
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from .declarations import SPACES, VECTORS
from .diagnostics import listed
from .errors import MetalCompileError
from .pointers import mixed_pointers
from .rewrite import on_cpu, rewrite
from .rules import violations
from .scopes import FILE, KERNEL
from .signature import ATTRIBUTES, Parameter, Signature
from .tokens import Token, after_brackets, after_space, tokenize

__all__ = ["Program", "texts_of", "write_program"]

_BEFORE_CAST = {"=", "(", ",", "[", "{", ";", "+", "?", ":", "return"}
_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")


class Program(NamedTuple):
    """A kernel in C++.

    cpp: the text to compile and run.
    spaces: a text with real address spaces, for clang to check.
    texts: the kernel's body and header, keyed by the file names that messages use for them.
    mixed: the errors about address spaces that are visible in the tokens alone.
    """

    cpp: str
    spaces: str
    texts: dict[str, str]
    mixed: str


@lru_cache(256)
def write_program(name: str, signature: Signature, header: str, source: str) -> Program:
    """Write the kernel in C++, with a function `msl_kernel_entry` that runs the kernel for one thread.

    Raises:
        MetalCompileError: the source does something that Metal forbids but C++ allows.
    """
    texts = texts_of(name, header, source)
    body, before = texts
    _check(name, texts, {before: FILE, body: KERNEL}, signature.template_line + header)
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
    return Program(cpp, _with_spaces(signature, texts), texts, _mixed(signature, texts))


def texts_of(name: str, header: str, source: str) -> dict[str, str]:
    """Return a kernel's body and header, keyed by the file names that messages use for them."""
    plain = re.sub(r"[^\w.-]", "_", name)
    return {f"{plain}.metal": source, f"{plain}.header.metal": header}


def _check(name: str, texts: Mapping[str, str], outermost: Mapping[str, str], before: str) -> None:
    """Raise a MetalCompileError if the tokens alone show an error. before: text that names types of the kernel."""
    errors = {
        (file, line): message
        for file, kind in outermost.items()
        for line, message in violations(texts[file], kind, before)
    }
    if errors:
        raise MetalCompileError(f"kernel '{name}' does not compile:\n{listed(errors, texts)}")


def _mixed(signature: Signature, texts: Mapping[str, str]) -> str:
    (body, source), (before, header) = texts.items()
    given = [parameter.declaration for parameter in signature.parameters]
    errors = {(before, line): message for line, message in mixed_pointers(header, FILE)}
    errors |= {(body, line): message for line, message in mixed_pointers(source, KERNEL, given, header)}
    return listed(errors, texts)


def _with_spaces(signature: Signature, texts: Mapping[str, str]) -> str:
    """Write the text that clang checks, but does not compile."""
    (body, source), (before, header) = texts.items()
    parameters = [p.declaration for p in signature.parameters]
    parameters += [f"{ATTRIBUTES[a][0]} {a}" for a in signature.attributes]
    return f"""#include "spaces.h"
using namespace metal;
#line 1 "{before}"
{rewrite(header, FILE, _with_space)}
#line 1 "signature"
{signature.template_line}static void msl_kernel({", ".join(parameters)}) {{
#line 1 "{body}"
{rewrite(source, KERNEL, _with_space)}
}}
#line 1 "entry"
auto* msl_kernel_entry = &msl_kernel{signature.template_values};
"""


def _with_space(tokens: Sequence[Token], i: int) -> str:
    """Rewrite token i for spaces.h, whose functions make vectors and cast pointers. Keep `constant`."""
    text = on_cpu(tokens, i)
    if tokens[i].text in SPACES and _is_of_method(tokens, i):
        return ""  # clang rejects an address space there
    if tokens[i].text == "constant" and text != "constant":
        return f"{text} constant"
    if _end_of_cast(tokens, i):
        return "msl_cast<"
    if text == ")" and _end_of_cast(tokens, _opening(tokens, i)) == i > 0:
        return ">() % "
    after = after_space(tokens, i + 1)
    is_called = after < len(tokens) and tokens[after].text == "("
    return f"msl_make<{text}>" if is_called and tokens[i].kind == "word" and text in VECTORS else text


def _is_of_method(tokens: Sequence[Token], i: int) -> bool:
    """Tell whether the address space at token i qualifies a method's object: `int f() const device {`."""
    before = [token.text for token in tokens[max(0, i - 4) : i] if token.kind != "space"]
    after = after_space(tokens, i + 1)
    is_end = after < len(tokens) and tokens[after].text in ("{", ";", ":", "=", "const")
    return is_end and (before[-1:] == [")"] or before[-2:] == [")", "const"])


def _end_of_cast(tokens: Sequence[Token], i: int) -> int:
    """Return the index of the bracket that ends the cast `(device T*)` at token i.

    Return 0 if no such cast begins at token i, or if an operator before the cast binds to the cast.
    """
    if tokens[i].text != "(":
        return 0
    end = after_brackets(tokens, i) - 1
    words = [token.text for token in tokens[i + 1 : end] if token.kind != "space"]
    before = next((token.text for token in reversed(tokens[:i]) if token.kind != "space"), "")
    after = after_space(tokens, end + 1)
    is_operand = after < len(tokens) and (tokens[after].kind == "word" or tokens[after].text in ("(", "&"))
    is_pointer = words[-1:] == ["*"] and words.count("*") == 1 and SPACES & set(words)
    return end if is_pointer and is_operand and before in _BEFORE_CAST else 0


def _opening(tokens: Sequence[Token], i: int) -> int:
    return next((k for k in range(i - 1, -1, -1) if tokens[k].text in "()"), 0)


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


def _swizzles(source: str) -> str:
    """Define the swizzles that the kernel uses, for include/msl/vector.h."""
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
