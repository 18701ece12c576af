"""A compiler's messages, reduced to the kernel's own lines."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

__all__ = ["explain_errors", "listed", "quoted"]

_REASONS = {
    "function_constant": "mx.fast.metal_kernel cannot set a function constant: make it a template argument",
    "atomic_thread_fence": "'atomic_thread_fence' is not supported by metal_host, which runs threadgroups in no "
    "particular order: use a second kernel for work that needs the first kernel's results",
}
_NOT_METAL = {"double", "dynamic_cast", "typeid", "throw", "goto", "thread_local", "asm", "__asm__", "printf"}


def explain_errors(output: str, texts: Mapping[str, str]) -> str:
    """List the first errors, each with its file, line number, message and line of code. texts: the kernel's texts,
    keyed by file name."""
    errors: dict[tuple[str, int], str] = {}
    for file, line, message in _errors(output.splitlines(), texts):
        errors.setdefault((file, line), _plain(message, _text(file, line, texts, "")))
    own = {place: message for place, message in errors.items() if place[0] in texts}
    return listed(own or errors, texts) or output[-1000:]


def listed(errors: Mapping[tuple[str, int], str], texts: Mapping[str, str], most: int = 3) -> str:
    """List the first errors, each with its file, line number, message and line of code.

    errors: messages, keyed by file and line. texts: the kernel's texts, keyed by file name. most: the maximum
        number of errors to list.
    """
    first = list(errors.items())[:most]
    parts = [f"{f}:{n}: {message}{_text(f, n, texts, chr(10) + '    ')}" for (f, n), message in first]
    more = [f"and {len(errors) - most} more"] if len(errors) > most else []
    return "\n".join([*parts, *more])


def quoted(file: str, line: int, texts: Mapping[str, str]) -> str:
    """Return a file name, a line number and the code in that line, such as "name.metal:3: x = y;"."""
    return f"{file}:{line}:{_text(file, line, texts, ' ')}"


def _text(file: str, line: int, texts: Mapping[str, str], before: str) -> str:
    lines = texts.get(file, "").splitlines()
    return f"{before}{lines[line - 1].strip()}" if 0 < line <= len(lines) else ""


def _errors(lines: list[str], texts: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    """Yield the file, the line and the message of each error.

    For an error in one of our headers, yield the file and the line of the kernel code that led to the error.
    """
    led_from: tuple[str, int] | None = None
    for number, text in enumerate(lines):
        if re.search(r"In (instantiation|substitution) of|In ([\w ]+ )?function ", text):
            led_from = None
        inlined = re.search(r"inlined from .* at (?:.*/)?([^/:]+):(\d+):", text)
        if inlined and inlined[1] in texts and led_from is None:
            led_from = (inlined[1], int(inlined[2]))
        match = re.match(r"(.+?):(\d+):(?:\d+:)? +(.*)", text)
        if match is None:
            continue
        file, line, message = match[1].rsplit("/", 1)[-1], int(match[2]), match[3]
        if file in texts and message.startswith("required") and led_from is None:
            led_from = (file, line)
        elif error := re.match(r"(?:fatal )?error: (.*)", message):
            place = (file, line) if file in texts else led_from or _noted(lines[number + 1 :], texts) or (file, line)
            yield *place, error[1]


def _noted(lines: list[str], texts: Mapping[str, str]) -> tuple[str, int] | None:
    """Find the line of the kernel that uses a template or macro and thereby causes an error in another file.

    The compiler names this line in a note after the error.
    """
    for text in lines:
        if " error: " in text:
            return None
        match = re.match(r"(?:.*/)?(.+?):(\d+):\d+: note: in (instantiation|expansion) of", text)
        if match and match[1] in texts:
            return match[1], int(match[2])
    return None


def _plain(message: str, line: str) -> str:
    """Rewrite a message in Metal's words, without the names of metal_host's templates and namespaces."""
    if refused := re.search(r"attempt to use poisoned \"(\w+)\"", message):
        return _refusal(refused[1])
    if "attempt to use a poisoned identifier" in message:  # clang does not name the identifier
        return _refusal(next((word for word in re.findall(r"\w+", line) if word in _refused()), line))
    if "msl_where" in message and (name := re.search(r"\b(simd|quad|simdgroup|threadgroup)_\w+", line)):
        return f"'{name[0]}' is a function of Metal: a kernel cannot declare it"
    if twice := re.search(r"redefinition .*msl_site_of_(\w+)|redeclaration .*msl_site_of_(\w+)", message):
        return f"a second threadgroup variable '{twice[1] or twice[2]}'"
    if re.search(r"\[-W.*vla", message):
        return "an array's size must be known when the kernel is compiled: Metal has no arrays of variable length"
    message = re.sub("[‘’]", "'", message)
    message = re.sub(r"'(\w+)[^']*?(\.\w+|::[xyzw])?' (?=(is|may be) used uninit)", _variable, message)
    message = re.sub(r"there are no arguments to '(\w+)' .*", r"'\1' was not declared in this scope", message)
    message = re.sub(r" ?\[-[Wf][^\]]*\]| ?\[with [^\]]*\]| ?\{aka [^}]*\}", "", message)
    message = re.sub(r"metal::|std::|\(anonymous namespace\)::", "", message).replace("_Float16", "half")
    message = re.sub(r"\bvec<(\w+), ?(\d)>", r"\1\2", message)
    if message.startswith("redefinition of"):
        message += " (metal_host does not tell functions apart by address spaces alone)"
    return message.removeprefix('#error "').removesuffix('"')


def _variable(match: "re.Match[str]") -> str:
    """Name an uninitialised variable and its element, without the names of metal_host's members between them."""
    return f"'{match[1]}{(match[2] or '').replace('::', '.')}' "


@cache
def _refused() -> frozenset[str]:
    text = (Path(__file__).parent / "include" / "msl" / "refused.h").read_text(encoding="utf-8")
    return frozenset(" ".join(re.findall(r"#pragma GCC poison (.*)", text)).split())


def _refusal(name: str) -> str:
    if name in _NOT_METAL:
        return f"Metal has no '{name}'"
    if name.startswith(("texture", "depth")):
        return f"'{name}': mx.fast.metal_kernel passes buffers, no textures"
    return _REASONS.get(name, f"'{name}' is not supported by metal_host")
