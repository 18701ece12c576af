"""Makes stubs: modules of the reference without the code that their tasks ask for."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from functools import cache

from .regions import is_native, regions, with_regions
from .syllabus import TaskId, day_of, tasks
from .task_code import (
    Function,
    first_line,
    indent_of,
    leading_checks,
    lines_of,
    newline_of,
    parse,
    tasks_in,
    unneeded_helpers,
)

__all__ = ["make_stub"]

LINE_LENGTH = 120  # as in pyproject.toml


def make_stub(
    source: str, *, is_solved: Callable[[TaskId], bool] = lambda task_id: False, filename: str = "<string>"
) -> str:
    """Return a module's source in which each unsolved task raises an error. The `_check_*` calls at the beginning of
    the task's body stay.

    A function or class is a task if its docstring ends with a line such as `Task: w1d1.2`. The line can have several
    ids, separated by commas. The ids of a class apply to its methods that have no ids of their own, except for
    `_check_*`. A function with several ids is solved when all of these tasks are solved. The stub leaves out private
    functions, classes, constants and methods that only replaced bodies use, except for `_check_*`. Everything else
    stays the same, byte for byte. In C++ and Metal, a task is a region (`regions`), in which a comment takes the place
    of the error.

    Raises:
        StubError: the source has a syntax error, or a task id is malformed or not in the syllabus. The error names the
        file and the line.
    """
    if is_native(filename):
        return _with_comments(source, is_solved, filename)
    tree = parse(source, filename)
    errors = {
        function: _error(next(task_id for task_id in ids if not is_solved(task_id)), name)
        for function, ids, name in tasks_in(tree, filename)
        if not all(map(is_solved, ids))
    }
    unneeded = unneeded_helpers(tree, errors)
    lines = lines_of(source)
    for statement in sorted({*errors, *unneeded}, key=lambda statement: statement.lineno, reverse=True):
        if statement in unneeded:
            _leave_out(statement, lines)
        else:
            assert isinstance(statement, Function)
            _replace_body(statement, lines, errors[statement])
    return "".join(lines)


def _with_comments(source: str, is_solved: Callable[[TaskId], bool], filename: str) -> str:
    """Put a comment into each unsolved region. The comment says what to write there."""
    comments = {
        task: "".join(f"{indent_of(code)}// {line.strip()}\n" for line in _error(task, "what belongs here"))
        for task, code in regions(source, filename).items()
        if not is_solved(task)
    }
    return with_regions(source, comments, filename)


@cache
def _chapters() -> dict[TaskId, str]:
    return {task.id: day_of(task.id).chapter["en"] for task in tasks()}


def _error(task_id: TaskId, name: str) -> list[str]:
    """Return the sentences of a stub's error."""
    return [
        f"{task_id.words}: {name} is yours to write. ",
        f"Chapter: {_chapters()[task_id]}. ",
        f"Test: {task_id.test_command}",
    ]


def _replace_body(function: Function, lines: list[str], error: list[str]) -> None:
    first = function.body[0]
    before, _ = _split(lines[first.lineno - 1], first.col_offset)
    start, end = first_line(first), _end(function, lines)
    stub = []
    if before.strip():  # the body is on the signature's line
        stub = [before.rstrip()]
        before = indent_of(lines[function.lineno - 1]) + "    "
    if ast.get_docstring(function) is not None:
        stub += [before + _with_comment(first, lines)]
    while not stub and _is_blank_or_comment(lines[start - 1]):
        start -= 1
    stub += [before + _with_comment(check, lines) for check in leading_checks(function)]
    stub += _raise(error, before)
    if _is_async_generator(function):
        stub.append(f"{before}yield  # what makes this an asynchronous generator")
    newline = newline_of(lines)
    lines[start:end] = [line + newline for line in stub]


def _with_comment(statement: ast.stmt, lines: list[str]) -> str:
    """Return the source text of a statement, with the comment at the end of its line."""
    assert statement.end_lineno is not None
    assert statement.end_col_offset is not None
    _, behind = _split(lines[statement.end_lineno - 1], statement.end_col_offset)
    text = ast.get_source_segment("".join(lines), statement) or ""
    return text + (behind.rstrip() if behind.lstrip().startswith("#") else "")


def _raise(error: list[str], indent: str) -> list[str]:
    """Return the lines that raise an error, formatted as `ruff format` would."""
    if len(indent) + 6 + len("".join(error)) <= LINE_LENGTH:  # 4 columns of indentation and 2 quotes
        error = ["".join(error)]
    strings = [f"{indent}    {json.dumps(sentence, ensure_ascii=False)}" for sentence in error]
    return [f"{indent}raise NotImplementedError(", *strings, f"{indent})"]


def _is_async_generator(function: Function) -> bool:
    """Tell whether a function is an async generator. The stub of an async generator keeps a `yield`, because otherwise
    `async for` would not reach the error."""
    if not isinstance(function, ast.AsyncFunctionDef):
        return False
    nested = [node for node in ast.walk(function) if node is not function and isinstance(node, Function | ast.Lambda)]
    not_its_own = {part for node in nested for part in ast.walk(node)}
    return any(isinstance(node, ast.Yield) and node not in not_its_own for node in ast.walk(function))


def _leave_out(statement: ast.stmt, lines: list[str]) -> None:
    """Remove a statement, the comment directly before it, and the blank lines on one side."""
    start, end = first_line(statement), _end(statement, lines)
    indent = indent_of(lines[start])
    while start and lines[start - 1].startswith(f"{indent}#"):
        start -= 1
    top, bottom = start, end
    while top and _is_blank(lines[top - 1]):
        top -= 1
    while bottom < len(lines) and _is_blank(lines[bottom]):
        bottom += 1
    blank = max(start - top, bottom - end)
    if top == 0 or len(indent_of(lines[top - 1])) < len(indent):  # the statement is the first in its block
        blank = start - top
    elif bottom == len(lines):
        blank = 0
    lines[top:bottom] = [newline_of(lines)] * blank


def _end(statement: ast.stmt, lines: list[str]) -> int:
    """Return the index of the line after a statement. Comments at the end of a body are part of the statement."""
    assert statement.end_lineno is not None
    indent, end = indent_of(lines[statement.lineno - 1]), statement.end_lineno
    for index in range(end, len(lines)):
        if not _is_blank(lines[index]):
            if not re.match(rf"{indent}\s+#", lines[index]):
                break
            end = index + 1
    return end


def _split(line: str, offset: int) -> tuple[str, str]:
    """Split a line at an offset that `ast` gives in UTF-8 bytes."""
    encoded = line.encode()
    return encoded[:offset].decode(), encoded[offset:].decode()


def _is_blank(line: str) -> bool:
    return not line.strip()


def _is_blank_or_comment(line: str) -> bool:
    return line.lstrip()[:1] in ("", "#")
