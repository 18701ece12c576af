"""Which tasks of a package are still stubs, read from its source: nothing is imported or run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .syllabus import TaskId

__all__ = ["Stub", "task_in_message", "unsolved"]


@dataclass(frozen=True, order=True)
class Stub:
    """A place where a task's code is still to be written."""

    task: TaskId
    file: Path
    line: int
    message: str


def task_in_message(message: str) -> TaskId | None:
    """The task that a stub's message names: `Week 1 Day 2 Task 3: ...`."""
    match = re.match(r"Week (\d+) Day (\d+) Task (\d+): ", message)
    return TaskId(*map(int, match.groups())) if match else None


def unsolved(package: Path) -> list[Stub]:
    """All stubs in a package's directory, in the order of the course. A file that does not parse has none."""
    return sorted(stub for file in sorted(package.rglob("*.py")) for stub in _stubs_in(file))


def _stubs_in(file: Path) -> Iterator[Stub]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        match node:
            case ast.Raise(
                exc=ast.Call(func=ast.Name(id="NotImplementedError"), args=[ast.Constant(value=str(message))])
            ):
                if task := task_in_message(message):
                    yield Stub(task, file, node.lineno, message)
