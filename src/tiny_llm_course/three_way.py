"""Merges three texts by lines, as git does, and resolves conflicts in which a side only added lines."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from .task_code import lines_of

__all__ = ["Conflict", "three_way"]

SIZE = 60  # of git's markers: no text contains such a line
YOURS, BASE, THEIRS, END = ("<" * SIZE, "|" * SIZE, "=" * SIZE, ">" * SIZE)


@dataclass(frozen=True)
class Conflict:
    """Lines that both sides changed."""

    yours: list[str]
    base: list[str]
    theirs: list[str]

    def both(self) -> list[str] | None:
        """The lines of one side with those that the other side added. None: both did more than adding lines."""
        for mine, other in ((self.yours, self.theirs), (self.theirs, self.yours)):
            if (added := _added(self.base, mine)) is not None:
                return _with(added, self.base, other)
        return None


def three_way(yours: str, base: str, theirs: str) -> list[str | Conflict]:
    """The lines of a text with the changes of both sides, and the conflicts between them."""
    parts: list[str | Conflict] = []
    sides: list[list[str]] = []
    for line in lines_of(_merged(yours, base, theirs)):
        if line.startswith(YOURS):
            sides = [[]]
        elif line.startswith((BASE, THEIRS)):
            sides.append([])
        elif line.startswith(END):
            parts.append(Conflict(*sides))
            sides = []
        elif sides:
            sides[-1].append(line)
        else:
            parts.append(line)
    return parts


def _merged(yours: str, base: str, theirs: str) -> str:
    """Git's merge of the three texts, with markers around conflicts."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("yours", "base", "theirs")]
        for file, text in zip(files, (yours, base, theirs), strict=True):
            file.write_bytes((text if text.endswith("\n") or not text else f"{text}\n").encode())
        command = ["git", "merge-file", "-p", "-q", "--diff3", f"--marker-size={SIZE}", *map(str, files)]
        run = subprocess.run(command, capture_output=True)
    assert run.returncode < 128, run.stderr.decode(errors="replace")
    return run.stdout.decode()


def _added(base: list[str], side: list[str]) -> dict[int, list[str]] | None:
    """The lines that a side added, by the line of the base that follows them. None: it changed other lines, too."""
    steps = SequenceMatcher(None, base, side, autojunk=False).get_opcodes()
    if any(kind not in ("equal", "insert") for kind, *_ in steps):
        return None
    return {place: side[start:end] for kind, place, _, start, end in steps if kind == "insert"}


def _with(added: dict[int, list[str]], base: list[str], side: list[str]) -> list[str]:
    """A side with the lines that the other added, each after the line that it followed, or before a later one."""
    blocks = SequenceMatcher(None, base, side, autojunk=False).get_matching_blocks()
    place_of = {block.a + i: block.b + i for block in blocks for i in range(block.size)}
    found = list(side)
    for place, lines in sorted(added.items(), reverse=True):
        later = (place_of[line] for line in range(place, len(base)) if line in place_of)
        target = place_of[place - 1] + 1 if place - 1 in place_of else next(later, len(side)) if place else 0
        found[target:target] = [line for line in lines if not (_is_import(line) and line in side)]
    return found


def _is_import(line: str) -> bool:
    return line.startswith(("import ", "from "))
