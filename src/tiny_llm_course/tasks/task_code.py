"""Finds each task's code in a module: the task's functions, and the private helpers that only tasks use."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import takewhile
from typing import TypeAlias

from .syllabus import TaskId, parse_task_ids, tasks

__all__ = [
    "Definition",
    "Function",
    "StubError",
    "check_known",
    "defined_name",
    "first_line",
    "indent_of",
    "leading_checks",
    "lines_of",
    "names_in",
    "newline_of",
    "parse",
    "statements_in",
    "task_parts",
    "tasks_in",
    "unneeded_helpers",
]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = Function | ast.ClassDef
Scope: TypeAlias = ast.Module | ast.ClassDef


class StubError(Exception):
    """An error that says why stubs cannot be made or written."""


def parse(source: str, filename: str) -> ast.Module:
    """Return a module's syntax tree. Raises a StubError that names the file and line of a syntax error."""
    try:
        return ast.parse(source, filename)
    except SyntaxError as error:
        raise StubError(f"{filename}:{error.lineno}: {error.msg}") from error
    except ValueError as error:  # a null byte, before Python 3.12
        raise StubError(f"{filename}: {error}") from error


def tasks_in(
    node: ast.AST, filename: str = "<string>", prefix: str = "", inherited: tuple[TaskId, ...] = ()
) -> Iterator[tuple[Function, tuple[TaskId, ...], str]]:
    """Yield the functions in a node that are tasks, each with its task ids and its qualified name."""
    for child in statements_in(node):
        if not isinstance(child, Definition):
            yield from tasks_in(child, filename, prefix, inherited)
            continue
        ids = _task_ids(child, filename) or (() if child.name.startswith("_check_") else inherited)
        if ids and isinstance(child, Function):
            yield child, ids, prefix + child.name
        else:
            yield from tasks_in(child, filename, f"{prefix}{child.name}.", ids)


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements directly in a module or statement, and the handlers and cases that contain further
    statements.

    Expressions are not visited, because they make up most of a tree but cannot contain a definition.
    """
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        yield from getattr(node, name, ())


def task_parts(source: str) -> dict[TaskId, list[str]]:
    """Return the qualified names of each task's functions, keyed by task. Each list continues with the helpers that
    these functions need and that stubs leave out."""
    tree = parse(source, "<string>")
    tagged = list(tasks_in(tree))
    left_out = unneeded_helpers(tree, [function for function, _, _ in tagged])
    qualified = {s: f"{prefix}{name}" for scope, prefix in _scopes(tree) for s, name in _helpers(scope).items()}
    helpers = {helper: name.rpartition(".")[2] for helper, name in qualified.items() if helper in left_out}
    uses = {helper: names_in(helper) for helper in helpers}
    parts = {}
    for task_id in sorted({task_id for _, ids, _ in tagged for task_id in ids}):
        own = [(function, name) for function, ids, name in tagged if task_id in ids]
        reached = _reached(helpers, uses, set().union(*(names_in(function) for function, _ in own)))
        names = [name for _, name in own] + [qualified[helper] for helper in helpers if helper in reached]
        parts[task_id] = list(dict.fromkeys(names))  # a class's helpers are its task's functions, too
    return parts


@cache
def _known() -> set[TaskId]:
    return {task.id for task in tasks()}


def check_known(task: TaskId, place: str) -> TaskId:
    """Return the task. Raises a StubError, which names `place`, if the syllabus does not have the task."""
    if task not in _known():
        raise StubError(f"{place}: the syllabus has no task {task}")
    return task


def _task_ids(node: Definition, filename: str) -> tuple[TaskId, ...]:
    place = f"{filename}:{node.lineno}"
    try:
        ids = parse_task_ids(ast.get_docstring(node))
    except ValueError as error:
        raise StubError(f"{place}: {error}") from error
    return tuple(check_known(task_id, place) for task_id in ids)


def leading_checks(function: Function) -> list[ast.stmt]:
    """Return the calls to `_check_*` at the beginning of a function. The function's stub keeps these calls."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return list(takewhile(_is_check, body))


def _is_check(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name))):
            return name.startswith("_check_")
    return False


def unneeded_helpers(tree: ast.Module, cut: Collection[Function]) -> set[ast.stmt]:
    """Return the helpers that only the bodies of these functions need, directly or through other helpers. The leading
    checks and their helpers stay."""
    kept = {check for function in cut for check in leading_checks(function)}
    replaced = [statement for function in cut for statement in function.body if statement not in kept]
    helpers = {statement: name for scope, _ in _scopes(tree) for statement, name in _helpers(scope).items()}
    uses = {helper: names_in(helper, replaced) for helper in helpers}
    candidates = _reached(helpers, uses, set().union(*(names_in(statement) for statement in replaced)))
    others = [uses[helper] for helper in helpers.keys() - candidates]
    return candidates - _reached(helpers, uses, names_in(tree, [*replaced, *helpers]).union(*others))


def _reached(helpers: dict[ast.stmt, str], uses: dict[ast.stmt, set[str]], names: set[str]) -> set[ast.stmt]:
    """Return the helpers with these names, and the helpers that these helpers need, directly or through other
    helpers."""
    reached: set[ast.stmt] = set()
    while new := {helper for helper, name in helpers.items() if name in names} - reached:
        reached |= new
        names = names.union(*(uses[helper] for helper in new))
    return reached


def _scopes(scope: Scope, prefix: str = "") -> Iterator[tuple[Scope, str]]:
    """Yield a module or class, and all classes inside except helpers. Yield each with the prefix of its members'
    qualified names."""
    yield scope, prefix
    helpers = _helpers(scope)
    for statement in scope.body:
        if isinstance(statement, ast.ClassDef) and statement not in helpers:
            yield from _scopes(statement, f"{prefix}{statement.name}.")


def _helpers(scope: Scope) -> dict[ast.stmt, str]:
    """Return a module's private functions, classes and constants, or a class's private methods, with their names."""
    helpers = {
        statement: name
        for statement in scope.body
        if _is_private(name := defined_name(statement))
        and (isinstance(scope, ast.Module) or isinstance(statement, Function))
        and not any(_is_tagged(part) for part in ast.walk(statement))
    }
    return helpers if len(helpers) < len(scope.body) else {}  # a class without a body would be a syntax error


def defined_name(statement: ast.stmt) -> str:
    """Return the name of the function, class or constant that a statement defines. Return "" if the statement defines
    none."""
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


def names_in(node: ast.AST, excluded: Collection[ast.AST] = ()) -> set[str]:
    """Return the identifiers that a node uses. Words in strings count, because annotations and `__all__` may contain
    names as strings; docstrings do not count."""
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
    return names.union(*(names_in(child, excluded) for child in ast.iter_child_nodes(node)))


def lines_of(source: str) -> list[str]:
    """Return a text's lines, with their line ends."""
    return list(io.StringIO(source, newline=""))


def newline_of(lines: list[str]) -> str:
    """Return the line end that a text uses."""
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def first_line(statement: ast.stmt) -> int:
    """Return the index of a statement's first line, decorators included."""
    decorators = statement.decorator_list if isinstance(statement, Definition) else []
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)]) - 1
