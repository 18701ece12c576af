"""A stub is a module of the reference without what its tasks ask for."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import TypeAlias

from .syllabus import TaskId, parse_task_ids, weeks

__all__ = ["StubError", "make_stub"]

LINE_LENGTH = 120  # pyproject.toml's

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = Function | ast.ClassDef
Scope: TypeAlias = ast.Module | ast.ClassDef


class StubError(Exception):
    """Why stubs cannot be made or written, in words for whoever asked for them."""


def make_stub(
    source: str, *, is_solved: Callable[[TaskId], bool] = lambda task_id: False, filename: str = "<string>"
) -> str:
    """The source of a module in which an error stands in place of each unsolved task's body.

    A function or class is a task when its docstring's last line is `Task: w1d1.2`, or several ids with commas between
    them; a class's ids are those of its methods that have none of their own, `_check_*` excepted. A task is solved
    when all its ids are. Private functions, classes, constants and methods that only replaced bodies use are left out,
    `_check_*` excepted. Everything else stays as it is, byte for byte.

    Raises:
        StubError: a syntax error, or a task id that is malformed or not in the syllabus; names filename and line.
    """
    tree = _parse(source, filename)
    errors = {
        function: _error(next(task_id for task_id in ids if not is_solved(task_id)), name)
        for function, ids, name in _tasks(tree, filename)
        if not all(map(is_solved, ids))
    }
    unneeded = _unneeded_helpers(tree, [statement for function in errors for statement in function.body])
    lines = list(io.StringIO(source, newline=""))
    for statement in sorted({*errors, *unneeded}, key=lambda statement: statement.lineno, reverse=True):
        if statement in unneeded:
            _leave_out(statement, lines)
        else:
            assert isinstance(statement, Function)
            _replace_body(statement, lines, errors[statement])
    return "".join(lines)


def _parse(source: str, filename: str) -> ast.Module:
    try:
        return ast.parse(source, filename)
    except SyntaxError as error:
        raise StubError(f"{filename}:{error.lineno}: {error.msg}") from error
    except ValueError as error:  # a null byte, before Python 3.12
        raise StubError(f"{filename}: {error}") from error


def _tasks(
    node: ast.AST, filename: str, prefix: str = "", inherited: tuple[TaskId, ...] = ()
) -> Iterator[tuple[Function, tuple[TaskId, ...], str]]:
    """The functions below a node that are tasks, their ids, their qualified names."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Definition):
            yield from _tasks(child, filename, prefix, inherited)
            continue
        ids = _task_ids(child, filename) or (() if child.name.startswith("_check_") else inherited)
        if ids and isinstance(child, Function):
            yield child, ids, prefix + child.name
        else:
            yield from _tasks(child, filename, f"{prefix}{child.name}.", ids)


def _task_ids(node: Definition, filename: str) -> tuple[TaskId, ...]:
    try:
        ids = parse_task_ids(ast.get_docstring(node))
    except ValueError as error:
        raise StubError(f"{filename}:{node.lineno}: {error}") from error
    for task_id in ids:
        if task_id not in _chapters():
            raise StubError(f"{filename}:{node.lineno}: the syllabus has no task {task_id}")
    return ids


@cache
def _chapters() -> dict[TaskId, str]:
    return {task.id: day.chapter["en"] for week in weeks() for day in week.days for task in day.tasks}


def _error(task_id: TaskId, name: str) -> list[str]:
    """The sentences that a learner reads."""
    return [
        f"{task_id.words}: {name} is yours to write. ",
        f"Chapter: {_chapters()[task_id]}. ",
        f"Test: {task_id.test_command}",
    ]


def _unneeded_helpers(tree: ast.Module, replaced: list[ast.stmt]) -> set[ast.stmt]:
    """Helpers that replaced statements lead to, directly or through other helpers, and nothing else does."""
    helpers = {statement: name for scope in _scopes(tree) for statement, name in _helpers(scope).items()}
    uses = {helper: _names(helper, replaced) for helper in helpers}

    def reached(names: set[str]) -> set[ast.stmt]:
        found: set[ast.stmt] = set()
        while new := {helper for helper, name in helpers.items() if name in names} - found:
            found |= new
            names = names.union(*(uses[helper] for helper in new))
        return found

    candidates = reached(set().union(*(_names(statement) for statement in replaced)))
    others = [uses[helper] for helper in helpers.keys() - candidates]
    return candidates - reached(_names(tree, [*replaced, *helpers]).union(*others))


def _scopes(scope: Scope) -> Iterator[Scope]:
    """A module or class, and the classes in it that are no helpers themselves."""
    yield scope
    helpers = _helpers(scope)
    for statement in scope.body:
        if isinstance(statement, ast.ClassDef) and statement not in helpers:
            yield from _scopes(statement)


def _helpers(scope: Scope) -> dict[ast.stmt, str]:
    """A module's private functions, classes and constants, or a class's private methods, and their names."""
    found = {
        statement: name
        for statement in scope.body
        if _is_private(name := _defined_name(statement))
        and (isinstance(scope, ast.Module) or isinstance(statement, Function))
        and not any(_is_tagged(part) for part in ast.walk(statement))
    }
    return found if len(found) < len(scope.body) else {}  # a class needs a body


def _defined_name(statement: ast.stmt) -> str:
    match statement:
        case (
            ast.FunctionDef(name=name)
            | ast.AsyncFunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.Assign(targets=[ast.Name(id=name)])
            | ast.AnnAssign(target=ast.Name(id=name))
        ):
            return str(name)
    return ""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("_check_") and not re.fullmatch("__.*__", name)


def _is_tagged(node: ast.AST) -> bool:
    return isinstance(node, Definition) and bool(parse_task_ids(ast.get_docstring(node)))


def _names(node: ast.AST, excluded: Collection[ast.AST] = ()) -> set[str]:
    """Identifiers that a node uses; of strings the words, as annotations and `__all__` are strings, docstrings not."""
    if node in excluded:
        return set()
    names: set[str] = set()
    match node:
        case ast.Expr(value=ast.Constant()):
            return set()
        case ast.Name(id=name) | ast.Attribute(attr=name):
            names = {name}
        case ast.Constant(value=str(text)):
            names = set(re.findall(r"\w+", text))
    return names.union(*(_names(child, excluded) for child in ast.iter_child_nodes(node)))


def _replace_body(function: Function, lines: list[str], error: list[str]) -> None:
    first = function.body[0]
    before, _ = _split(lines[first.lineno - 1], first.col_offset)
    start, end = _start(first), _end(function, lines)
    stub = []
    if before.strip():  # the body stands on the signature's line
        stub = [before.rstrip()]
        before = _indent(lines[function.lineno - 1]) + "    "
    if ast.get_docstring(function) is not None:
        stub += [before + _docstring(first, lines)]
    while not stub and _is_blank_or_comment(lines[start - 1]):
        start -= 1
    stub += _raise(error, before)
    newline = _newline(lines)
    lines[start:end] = [line + newline for line in stub]


def _docstring(statement: ast.stmt, lines: list[str]) -> str:
    """As it is written, with the comment behind it."""
    assert statement.end_lineno is not None
    assert statement.end_col_offset is not None
    _, behind = _split(lines[statement.end_lineno - 1], statement.end_col_offset)
    text = ast.get_source_segment("".join(lines), statement) or ""
    return text + (behind.rstrip() if behind.lstrip().startswith("#") else "")


def _raise(error: list[str], indent: str) -> list[str]:
    """A statement as `ruff format` would leave it."""
    if len(indent) + 6 + len("".join(error)) <= LINE_LENGTH:  # 4 more columns and 2 quotes
        error = ["".join(error)]
    strings = [f"{indent}    {json.dumps(sentence, ensure_ascii=False)}" for sentence in error]
    return [f"{indent}raise NotImplementedError(", *strings, f"{indent})"]


def _leave_out(statement: ast.stmt, lines: list[str]) -> None:
    """Remove a statement, the comment directly above it, and the blank lines on one side."""
    start, end = _start(statement), _end(statement, lines)
    indent = _indent(lines[start])
    while start and lines[start - 1].startswith(f"{indent}#"):
        start -= 1
    top, bottom = start, end
    while top and _is_blank(lines[top - 1]):
        top -= 1
    while bottom < len(lines) and _is_blank(lines[bottom]):
        bottom += 1
    blank = max(start - top, bottom - end)
    if top == 0 or len(_indent(lines[top - 1])) < len(indent):  # the first in its block
        blank = start - top
    elif bottom == len(lines):
        blank = 0
    lines[top:bottom] = [_newline(lines)] * blank


def _start(statement: ast.stmt) -> int:
    """Index of a statement's first line, decorators included."""
    decorators = statement.decorator_list if isinstance(statement, Definition) else []
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)]) - 1


def _end(statement: ast.stmt, lines: list[str]) -> int:
    """Index behind a statement's last line, and behind the comments that end its body."""
    assert statement.end_lineno is not None
    indent, end = _indent(lines[statement.lineno - 1]), statement.end_lineno
    for index in range(end, len(lines)):
        if not _is_blank(lines[index]):
            if not re.match(rf"{indent}\s+#", lines[index]):
                break
            end = index + 1
    return end


def _split(line: str, offset: int) -> tuple[str, str]:
    """Split at one of ast's offsets, which count UTF-8 bytes."""
    encoded = line.encode()
    return encoded[:offset].decode(), encoded[offset:].decode()


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _is_blank(line: str) -> bool:
    return not line.strip()


def _is_blank_or_comment(line: str) -> bool:
    return line.lstrip()[:1] in ("", "#")


def _newline(lines: list[str]) -> str:
    return "\r\n" if lines[0].endswith("\r\n") else "\n"
