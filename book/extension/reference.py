"""Finds a task's code in the learner's files and in the reference's files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tiny_llm_course.learner.workspace import Workspace
from tiny_llm_course.tasks.regions import is_native, parts_of, regions
from tiny_llm_course.tasks.splice import code_of
from tiny_llm_course.tasks.syllabus import TaskId, day_of
from tiny_llm_course.tasks.task_code import parse, tasks_in

__all__ = ["Listing", "functions", "holds_tasks", "listings"]

Span: TypeAlias = tuple[str, int, int]  # scope, index of the first character, index after the last character


@dataclass(frozen=True)
class Listing:
    """Successive lines of the reference."""

    file: Path
    name: str  # of the file, relative to the repository's root
    scope: str  # the class that contains the lines, or ""
    line: int  # number of the first line
    code: str


def holds_tasks(file: Path) -> bool:
    """Tell whether a learner's file contains code to write. The op of a kernel, for example, is given."""
    return bool(parts_of(Workspace().solution(file), file.name))


def functions(task: TaskId) -> dict[str, list[str]]:
    """Return the functions that a task asks for, without the reference's helpers, keyed by learner's file."""
    workspace = Workspace()
    return {
        file.relative_to(workspace.root).as_posix(): _asked_for(task, workspace.solution(file), file)
        for file in workspace.parts(day_of(task), task)
    }


def listings(task: TaskId) -> list[Listing]:
    """Return the reference's code of a task. Neighbouring pieces share one listing."""
    workspace = Workspace()
    found = []
    for file, names in workspace.parts(day_of(task), task).items():
        source = workspace.solution(file)
        original = workspace.reference / file.relative_to(workspace.package)
        name = original.relative_to(workspace.root).as_posix()
        for scope, start, end in _joined(source, _spans(task, source, names, file)):
            found.append(Listing(original, name, scope, source[:start].count("\n") + 1, source[start:end]))
    return found


def _asked_for(task: TaskId, source: str, file: Path) -> list[str]:
    if is_native(file):
        return []
    asked = (name for _, ids, name in tasks_in(parse(source, file.name)) if task in ids)
    return [name for name in asked if not re.search(r"(^|\.)_(?!_)", name)]


def _spans(task: TaskId, source: str, names: list[str], file: Path) -> Iterator[Span]:
    """Yield the span of each part of a task."""
    for name in names:
        code = regions(source, file.name)[task] if is_native(file) else code_of(source, name)
        start = f"\n{source}".index(f"\n{code}")  # whole lines: a short text may also occur within another one
        yield "" if is_native(file) else name.rpartition(".")[0], start, start + len(code)


def _joined(source: str, spans: Iterable[Span]) -> list[Span]:
    """Sort the spans, and join spans of the same scope with only blank lines between them."""
    joined: list[Span] = []
    for scope, start, end in sorted(spans, key=lambda span: span[1]):
        if joined and joined[-1][0] == scope and not source[joined[-1][2] : start].strip():
            start = joined.pop()[1]
        joined.append((scope, start, end))
    return joined
