"""Finds the learner's lines that a merge could not keep, by comparing the texts line by line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from ..tasks.task_code import lines_of
from .three_way import is_import

__all__ = ["LostLines", "lost_lines"]


@dataclass(frozen=True)
class LostLines:
    """A range of lines in the learner's file, counted from 1. The merged file lacks these lines, or has lines between
    them that the learner had removed."""

    first: int
    last: int


def lost_lines(yours: str, old: str, new: str, merged: str, kept: Collection[int] = ()) -> list[LostLines]:
    """Find the changes that the learner made to the stub but that the merged file lacks. kept: the learner's lines,
    counted from 0, that the merged file has in another place."""
    stub, own, result = (lines_of(text) for text in (old, yours, merged))
    edits, later = _steps(stub, own), _steps(own, result)
    mine = {i for step in edits for i in step.own}
    gone = {i for step in later for i in step.old if own[i].strip() and not (is_import(own[i]) and own[i] in result)}
    changed = {i for step in _steps(stub, lines_of(new)) for i in step.old if step.own}
    back = set()  # lines next to lines that the learner had removed but the merge put back
    for step in edits:
        place = step.own.start
        came = {result[i] for other in later if place in (*other.old, other.old.stop) for i in other.own} - {"\n"}
        taken = {stub[i] for i in step.old}
        if not step.own and came and (came & taken or changed & {*step.old}):
            back |= {place - 1, place} & {*range(len(own))}
    return _ranges((mine & gone).difference(kept) | back)


@dataclass(frozen=True)
class _Step:
    """A change: lines of an older text, and the lines of a newer text that replace them."""

    old: range
    own: range


def _steps(old: list[str], new: list[str]) -> list[_Step]:
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [_Step(range(a, b), range(c, d)) for kind, a, b, c, d in codes if kind != "equal"]


def _ranges(indices: Collection[int]) -> list[LostLines]:
    ranges: list[LostLines] = []
    for line in sorted(index + 1 for index in indices):
        if ranges and ranges[-1].last == line - 1:
            ranges[-1] = replace(ranges[-1], last=line)
        else:
            ranges.append(LostLines(line, line))
    return ranges
