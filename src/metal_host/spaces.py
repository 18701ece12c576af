"""A pass over a kernel in which clang checks real address spaces, and finds errors that Apple's compiler would find.

Only clang's errors about pointers and references to the wrong address space count. The machine's own compiler finds all
other errors, because the headers that it reads define the whole language.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .declarations import SPACES
from .diagnostics import listed
from .toolchain import Toolchain, run_tool

__all__ = ["mixed_spaces"]

_INCLUDE = Path(__file__).parent / "include"
_FLAGS = ("-std=c++17", "-fsyntax-only", "-w", "-ferror-limit=0", "-fno-color-diagnostics", "-fsigned-char")
_QUOTED = re.compile(r"'([^']*)'")
_NUMBERED = re.compile(r"__attribute__\(\(address_space\((\d)\)\)\)|address space '?(\d)'?")
_MISPLACED = re.compile(r"(automatic variable|field) .*qualified with an address space")
_OF_METHOD = re.compile(r"cannot initialize object parameter of type|'this' argument to member function")
_QUALIFIED = re.compile(r"\)\s*(const\s+)?(device|constant|threadgroup)(\s+const)?\s*[{;:=]")  # int f() const device {
_NAMES = {"0": "thread", "1": "device", "2": "constant", "3": "threadgroup"}


def mixed_spaces(source: str, texts: Mapping[str, str], clang: Toolchain, folder: Path) -> str:
    """List clang's errors about a kernel's pointers, each with its place. Return "" if there are no errors."""
    file = folder / "spaces.cpp"
    file.write_text(source, encoding="utf-8")
    lines = run_tool([*clang.command, *_FLAGS, f"-I{_INCLUDE}", str(file)]).stderr.splitlines()
    errors = dict(_relevant(lines, texts))
    # `source` lacks the address spaces of methods, so errors about calls count only if no method has an address space.
    if not any(map(_QUALIFIED.search, texts.values())):
        errors = dict(_methods(lines, texts)) | errors
    return listed(errors, texts)


_Errors = Iterator[tuple[tuple[str, int], str]]  # a place, and clang's error there


def _errors(lines: Sequence[str], texts: Mapping[str, str]) -> Iterator[tuple[int, tuple[str, int], str]]:
    """Yield clang's errors in the kernel's text: each error's index among the lines of clang's output, place and
    message."""
    for number, text in enumerate(lines):
        match = re.match(r"(?:.*/)?(.+?):(\d+):\d+: error: (.*)", text)
        if match and match[1] in texts:
            yield number, (match[1], int(match[2])), match[3]


def _methods(lines: Sequence[str], texts: Mapping[str, str]) -> _Errors:
    """Yield calls to methods on objects outside of thread memory, which Metal forbids before version 4.1."""
    for _, place, message in _errors(lines, texts):
        space = next((word for word in re.findall(r"\w+", _named(message)) if word in SPACES), "")
        if _OF_METHOD.match(message) and space:
            hint = f"copy the object, or write `const {space}` after the method's parameters"
            yield place, f"this method is for objects in thread memory, but this object is in {space} memory: {hint}"


def _relevant(lines: Sequence[str], texts: Mapping[str, str]) -> _Errors:
    for number, place, message in _errors(lines, texts):
        if _OF_METHOD.match(message):
            continue
        if _MISPLACED.match(message) or _differ(message):
            yield place, _named(message)
        elif message.startswith("no matching function"):
            reasons = list(_notes(lines[number + 1 :]))
            if reasons and all(map(_differ, reasons)):
                yield place, _named(f"{message}: {reasons[0]}")


def _notes(lines: Sequence[str]) -> Iterator[str]:
    """Yield the notes after an error. Each note says why a candidate does not fit."""
    for text in lines:
        if " error: " in text:
            return
        if match := re.search(r" note: (candidate .*)", text):
            yield match[1]


def _named(message: str) -> str:
    """Write a message with the names of address spaces, and without the names of our helpers."""
    message = re.sub(r"msl_type<([^>]*)>", r"\1", message).replace("generic address space", "thread")
    message = re.sub(r" ?\[with [^\]]*\]| \(aka '[^']*'\)|metal::", "", message)
    message = re.sub(r"invalid operands .*\('msl_cast<(.*)>' and (.*)\)", r"cast of \2 to '\1'", message)
    return _NUMBERED.sub(lambda match: _NAMES[match[1] or match[2]], message)


def _differ(message: str) -> bool:
    """Tell whether the first two types in a message are in different address spaces."""
    if "address space" in message:
        return True
    types = [type_ for type_ in _QUOTED.findall(_named(message)) if re.search(r"[*&[]", type_)]
    spaces = [SPACES & set(re.findall(r"\w+", type_)) for type_ in types]
    return len(spaces) > 1 and spaces[0] != spaces[1]
