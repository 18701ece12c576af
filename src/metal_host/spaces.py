"""The first pass: clang looks at a kernel with address spaces that are real, and refuses what Apple's compiler would.

Of what clang says, only pointers and references count that are led to another address space: the rest of a kernel's
mistakes the machine's own compiler finds, which knows all of the language.
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
    """Return what clang has against a kernel's pointers, with places; nothing if all is well."""
    file = folder / "spaces.cpp"
    file.write_text(source, encoding="utf-8")
    said = run_tool([*clang.command, *_FLAGS, f"-I{_INCLUDE}", str(file)]).stderr
    found = dict(_relevant(said.splitlines(), texts))
    # Clang does not know methods for objects in other address spaces than the thread's: who has some may call them.
    if not any(map(_QUALIFIED.search, texts.values())):
        found = dict(_methods(said.splitlines(), texts)) | found
    return listed(found, texts)


_Said = Iterator[tuple[tuple[str, int], str]]  # a place, and what clang has against it


def _errors(lines: Sequence[str], texts: Mapping[str, str]) -> Iterator[tuple[int, tuple[str, int], str]]:
    """Yield the errors in the kernel's text: the number of the line that says it, place, message."""
    for number, text in enumerate(lines):
        match = re.match(r"(?:.*/)?(.+?):(\d+):\d+: error: (.*)", text)
        if match and match[1] in texts:
            yield number, (match[1], int(match[2])), match[3]


def _methods(lines: Sequence[str], texts: Mapping[str, str]) -> _Said:
    """Calls of methods, which take the thread's own objects (from Metal 4.1 on also others), of other objects."""
    for _, place, said in _errors(lines, texts):
        space = next((word for word in re.findall(r"\w+", _named(said)) if word in SPACES), "")
        if _OF_METHOD.match(said) and space:
            hint = f"copy the object, or write `const {space}` behind the method's parameters"
            yield place, f"a method of the thread's own objects, called of one in the address space {space}: {hint}"


def _relevant(lines: Sequence[str], texts: Mapping[str, str]) -> _Said:
    for number, place, said in _errors(lines, texts):
        if _OF_METHOD.match(said):
            continue
        if _MISPLACED.match(said) or _differ(said):
            yield place, _named(said)
        elif said.startswith("no matching function"):
            reasons = list(_notes(lines[number + 1 :]))
            if reasons and all(map(_differ, reasons)):
                yield place, _named(f"{said}: {reasons[0]}")


def _notes(lines: Sequence[str]) -> Iterator[str]:
    """Return why no candidate fits: the notes after an error."""
    for text in lines:
        if " error: " in text:
            return
        if match := re.search(r" note: (candidate .*)", text):
            yield match[1]


def _named(said: str) -> str:
    """Write a message with the names of address spaces, and without what is ours."""
    said = re.sub(r"msl_type<([^>]*)>", r"\1", said).replace("generic address space", "thread")
    said = re.sub(r" ?\[with [^\]]*\]| \(aka '[^']*'\)|metal::", "", said)
    said = re.sub(r"invalid operands .*\('msl_cast<(.*)>' and (.*)\)", r"cast of \2 to '\1'", said)
    return _NUMBERED.sub(lambda match: _NAMES[match[1] or match[2]], said)


def _differ(said: str) -> bool:
    """Tell whether two types of a message are in different address spaces."""
    if "address space" in said:
        return True
    types = [type_ for type_ in _QUOTED.findall(_named(said)) if re.search(r"[*&[]", type_)]
    found = [SPACES & set(re.findall(r"\w+", type_)) for type_ in types]
    return len(found) > 1 and found[0] != found[1]
