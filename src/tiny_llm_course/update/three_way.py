"""Merges three texts line by line, as git does, and resolves conflicts in which one side only added lines."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from ..tasks.task_code import lines_of

__all__ = ["Conflict", "is_import", "three_way"]

MARKERS = "<|=>"  # the first characters of git's lines before, between and after the versions in a conflict


@dataclass(frozen=True)
class Conflict:
    """Lines that both sides changed."""

    yours: list[str]
    base: list[str]
    theirs: list[str]

    def both(self) -> list[str] | None:
        """If one side only added lines, return the other side's lines with the added lines. Return None if each side
        changed or removed lines of the base."""
        for mine, other in ((self.yours, self.theirs), (self.theirs, self.yours)):
            if (added := _added(self.base, mine)) is not None:
                return _with(added, self.base, other)
        return None


def three_way(yours: str, base: str, theirs: str) -> list[str | Conflict]:
    """Return the lines of the merged text, and the conflicts, in order."""
    texts = [text if text.endswith("\n") or not text else f"{text}\n" for text in (yours, base, theirs)]
    size = 1 + max([6, *(len(run) for text in texts for run in re.findall(r"<+|\|+|=+|>+", text))])
    first, *between, last = (mark * size for mark in MARKERS)
    parts: list[str | Conflict] = []
    sides: list[list[str]] = []
    for line in lines_of(_merged(texts, size)):
        if line.startswith(first):
            sides = [[]]
        elif line.startswith(tuple(between)):
            sides.append([])
        elif line.startswith(last):
            parts.append(Conflict(*sides))
            sides = []
        elif sides:
            sides[-1].append(line)
        else:
            parts.append(line)
    assert not sides
    return parts


def _merged(texts: list[str], size: int) -> str:
    """Return git's merge of the three texts, with markers of `size` characters around conflicts."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("yours", "base", "theirs")]
        for file, text in zip(files, texts, strict=True):
            file.write_bytes(text.encode())
        command = ["git", "merge-file", "-p", "-q", "--diff3", f"--marker-size={size}", *map(str, files)]
        run = subprocess.run(command, capture_output=True)
    assert run.returncode < 128, run.stderr.decode(errors="replace")
    return run.stdout.decode()


def _added(base: list[str], side: list[str]) -> dict[int, list[str]] | None:
    """Return the lines that a side added, keyed by the index of the base's line that follows them. Return None if the
    side also changed or removed lines."""
    steps = SequenceMatcher(None, base, side, autojunk=False).get_opcodes()
    if any(kind not in ("equal", "insert") for kind, *_ in steps):
        return None
    return {place: side[start:end] for kind, place, _, start, end in steps if kind == "insert"}


def _with(added: dict[int, list[str]], base: list[str], side: list[str]) -> list[str]:
    """Return a side with the lines that the other side added.

    Each added line goes after the base line that it followed. If this side has removed that base line, the added line
    goes before the next base line that this side still has.
    """
    blocks = SequenceMatcher(None, base, side, autojunk=False).get_matching_blocks()
    place_of = {block.a + i: block.b + i for block in blocks for i in range(block.size)}
    found = list(side)
    for place, lines in sorted(added.items(), reverse=True):
        later = (place_of[line] for line in range(place, len(base)) if line in place_of)
        target = place_of[place - 1] + 1 if place - 1 in place_of else next(later, len(side)) if place else 0
        found[target:target] = [line for line in lines if not (is_import(line) and line in side)]
    return found


def is_import(line: str) -> bool:
    """Tell whether a line is an import at the top of a module."""
    return line.startswith(("import ", "from "))
