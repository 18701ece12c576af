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
_NAMES = {"0": "thread", "1": "device", "2": "constant", "3": "threadgroup"}


def mixed_spaces(source: str, texts: Mapping[str, str], clang: Toolchain, folder: Path) -> str:
    """What clang has against a kernel's pointers, with places; nothing if all is well."""
    file = folder / "spaces.cpp"
    file.write_text(source, encoding="utf-8")
    said = run_tool([*clang.command, *_FLAGS, f"-I{_INCLUDE}", str(file)]).stderr
    return listed(dict(_relevant(said.splitlines(), texts)), texts)


def _relevant(lines: Sequence[str], texts: Mapping[str, str]) -> Iterator[tuple[tuple[str, int], str]]:
    for number, text in enumerate(lines):
        match = re.match(r"(?:.*/)?(.+?):(\d+):\d+: error: (.*)", text)
        if match is None or match[1] not in texts:
            continue
        place, said = (match[1], int(match[2])), match[3]
        if _MISPLACED.match(said) or _differ(said):
            yield place, _named(said)
        elif said.startswith("no matching function"):
            reasons = list(_notes(lines[number + 1 :]))
            if reasons and all(map(_differ, reasons)):
                yield place, _named(f"{said}: {reasons[0]}")


def _notes(lines: Sequence[str]) -> Iterator[str]:
    """Why no candidate fits: the notes behind an error."""
    for text in lines:
        if " error: " in text:
            return
        if match := re.search(r" note: (candidate .*)", text):
            yield match[1]


def _named(said: str) -> str:
    """With the names of address spaces, and without what is ours."""
    said = re.sub(r"msl_type<([^>]*)>", r"\1", said).replace("generic address space", "thread")
    said = re.sub(r" ?\[with [^\]]*\]| \(aka '[^']*'\)|metal::", "", said)
    said = re.sub(r"invalid operands .*\('msl_cast<(.*)>' and (.*)\)", r"cast of \2 to '\1'", said)
    return _NUMBERED.sub(lambda match: _NAMES[match[1] or match[2]], said)


def _differ(said: str) -> bool:
    """Whether two types of a message are in different address spaces."""
    if "address space" in said:
        return True
    types = [type_ for type_ in _QUOTED.findall(_named(said)) if re.search(r"[*&[]", type_)]
    found = [SPACES & set(re.findall(r"\w+", type_)) for type_ in types]
    return len(found) > 1 and found[0] != found[1]
