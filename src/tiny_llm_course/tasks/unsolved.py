"""Finds the tasks of a package that are still stubs. This module reads source files, but neither imports nor runs a
file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from .regions import code_files, is_native
from .syllabus import TaskId
from .task_code import StubError, statements_in, tasks_in

__all__ = ["Stub", "is_stub", "open_task", "task_in_message", "unsolved"]


@dataclass(frozen=True, order=True)
class Stub:
    """A place where the learner still has to write a task's code."""

    task: TaskId
    file: Path
    line: int
    message: str


def task_in_message(message: str) -> TaskId | None:
    """Return the task that a stub's message names: `Week 1 Day 2 Task 3: ...`."""
    match = re.match(r"Week (\d+) Day (\d+) Task (\d+): ", message)
    return TaskId(*map(int, match.groups())) if match else None


def unsolved(package: Path) -> list[Stub]:
    """Return all stubs in a package's directory, in the order of the course. A file that cannot be parsed counts as
    having no stubs."""
    return sorted(stub for file in code_files(package) for stub in _stubs_in(file))


def is_stub(function: ast.AST) -> bool:
    """Tell whether a function still contains a stub."""
    return any(True for _ in _messages(function))


def open_task(code: str) -> TaskId | None:
    """Return the task to which this stub in C++ or Metal belongs. Return None if this code is not a stub."""
    return task_in_message(code.strip().removeprefix("// "))


def _stubs_in(file: Path) -> Iterator[Stub]:
    if is_native(file):
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            if task := open_task(line):
                yield Stub(task, file, number, line.strip().removeprefix("// "))
        return
    source = file.read_bytes()
    if b"NotImplementedError" not in source:  # parsing takes most of the time that `next` needs
        return
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    stubs = set(_stubs_below(tree, file))
    with suppress(StubError):  # a task id that the learner changed
        for function, ids, _ in tasks_in(tree, str(file)):  # one stub may belong to several tasks
            stubs |= {replace(stub, task=task) for stub in _stubs_below(function, file) for task in ids}
    yield from stubs


def _stubs_below(node: ast.AST, file: Path) -> Iterator[Stub]:
    return (Stub(task, file, line, message) for task, line, message in _messages(node))


def _messages(node: ast.AST) -> Iterator[tuple[TaskId, int, str]]:
    """Yield the task, the line and the message of each stub's error in a node."""
    for child in statements_in(node):
        match child:
            case ast.Raise(
                exc=ast.Call(func=ast.Name(id="NotImplementedError"), args=[ast.Constant(value=str(message))])
            ):
                if task := task_in_message(message):
                    yield task, child.lineno, message
            case _:
                yield from _messages(child)
