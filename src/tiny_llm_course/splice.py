"""Puts tasks' code of one source into another, and leaves everything else as it is, byte for byte."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from textwrap import dedent

from .regions import is_native, regions, with_regions
from .syllabus import TaskId
from .task_code import (
    Definition,
    Function,
    StubError,
    defined_name,
    first_line,
    indent_of,
    lines_of,
    names_in,
    newline_of,
    parse,
    task_parts,
)
from .unsolved import is_stub, open_task

__all__ = ["SpliceError", "code_of", "definitions", "excerpt", "merge", "restore", "splice"]


class SpliceError(Exception):
    """Why a file was left alone, in words for its author."""


@dataclass(frozen=True)
class _Part:
    """Where a definition stands: lines `start` to before `end`, with decorators and the comments directly above."""

    start: int
    end: int
    node: ast.stmt


def definitions(source: str) -> list[str]:
    """The qualified names of what a module defines. Raises a SpliceError if it does not parse."""
    return list(_parts(source, "<string>"))


def code_of(source: str, name: str) -> str:
    """The text of the function, method or constant with this qualified name. Raises a KeyError if there is none."""
    part = _parts(source, "<string>")[name]
    return "".join(lines_of(source)[part.start : part.end])


def excerpt(source: str, names: Collection[str]) -> str:
    """A module of these definitions alone, in their order: a method below the head of its class, and the imports that
    all of them need."""
    parts, lines = _parts(source, "<string>"), lines_of(source)
    chosen = [name for name in parts if name in names and _scope(name) not in names]
    text, last = _with_imports("", source, chosen), ""
    for name in chosen:
        scope = _scope(name)
        if not scope or scope != last:
            text += "\n\n"
        if scope and scope != last:
            head = parts[scope]
            assert isinstance(head.node, ast.ClassDef)
            text += "".join(lines[head.start : first_line(head.node.body[0])])
        elif scope:
            text += "\n"
        text += code_of(source, name)
        last = scope
    return text.lstrip("\n")


def splice(target: str, source: str, names: list[str], filename: str) -> str:
    """`target` with the functions `names` as `source` has them, and with the imports that they need.

    A private helper that the target lacks is put in; one that `source` lacks, and nothing in the result uses, goes.
    In C++ and Metal the names are those of regions: ids of tasks. `filename` is the target's.

    Raises:
        SpliceError: the target has a syntax error, or no function or region of that name.
    """
    if is_native(filename):
        return _splice_regions(target, source, names, filename)
    wanted = _parts(source, "<string>")
    if target and not target.endswith("\n"):
        target += "\n"
    for name in names:
        if name in wanted:
            target = _put(target, source, name, filename)
    for name in names:
        if name not in wanted and name in (parts := _parts(target, filename)):
            rest = _without(target, parts[name])
            if name.rpartition(".")[2] not in names_in(ast.parse(rest)):
                target = rest
    return _with_imports(target, source, [name for name in names if name in wanted])


def restore(target: str, source: str, names: list[str], filename: str) -> str:
    """`target` with those of the functions `names` that it lacks, as `source` has them. All else stays as it is.

    Raises:
        SpliceError: the target has a syntax error, or lacks a class.
    """
    if is_native(filename):
        return target
    wanted = _parts(source, "<string>")
    for name in names:
        if name in wanted and name not in _parts(target, filename):
            target = _put(target, source, name, filename, any_name=True)
    return target


def _splice_regions(target: str, source: str, names: list[str], filename: str) -> str:
    places = _regions(target, filename)
    texts = {task: text for task, text in regions(source, filename).items() if str(task) in names}
    for task in texts:
        if task not in places:
            raise SpliceError(
                f"{filename}: expected `// task {task} begin` and `// task {task} end`; the file was left as it is."
            )
    return with_regions(target, texts, filename)


def _regions(source: str, filename: str) -> dict[TaskId, str]:
    try:
        return regions(source, filename)
    except StubError as error:
        raise SpliceError(f"{error}; the file was left as it is.") from error


def merge(yours: str, stub: str, filename: str) -> tuple[str, list[tuple[str, str]]]:
    """A newer stub with what its author's file has solved: that file's tasks, and all that it defines besides.

    Returns the text, and for each function whose signature is another one now, the old and the new one; the old
    function is kept.

    Raises:
        SpliceError: the author's file has a syntax error.
    """
    if is_native(filename):
        solved_regions = {task: text for task, text in _regions(yours, filename).items() if not open_task(text)}
        return with_regions(stub, solved_regions, filename), []
    mine, theirs = _parts(yours, filename), _parts(stub, filename)
    tagged = {name for names in task_parts(stub).values() for name in names}
    solved = [name for name in mine if name in tagged and not is_stub(mine[name].node)]
    own: list[str] = []
    for name in mine:
        if name not in theirs and _scope(name) not in own:  # a class of their own comes whole
            own.append(name)
    changed = [
        (_signature(mine[name].node), _signature(theirs[name].node))
        for name in solved
        if _signature(mine[name].node) != _signature(theirs[name].node)
    ]
    merged = stub
    for name in [*solved, *own]:
        merged = _put(merged, yours, name, filename, any_name=True)
    return _with_imports(merged, yours, [*solved, *own]) + _other_statements(yours, merged), changed


def _other_statements(yours: str, merged: str) -> str:
    """What the author's file does besides importing and defining, such as `if __name__ == "__main__"`."""
    found = []
    for statement in ast.parse(yours).body:
        text = ast.get_source_segment(yours, statement, padded=True) or ""
        if (
            not defined_name(statement)
            and not isinstance(statement, ast.Import | ast.ImportFrom)
            and text not in merged
        ):
            found.append(f"\n\n{text}\n")
    return "".join(found)


def _signature(node: ast.stmt) -> str:
    if not isinstance(node, Function):
        return ""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"


def _put(target: str, source: str, name: str, filename: str, any_name: bool = False) -> str:
    new = code_of(source, name)
    lines, parts = lines_of(target), _parts(target, filename)
    newline = newline_of(lines)
    if newline == "\r\n":
        new = new.replace("\n", newline)
    if name in parts:
        lines[parts[name].start : parts[name].end] = [new]
        return "".join(lines)
    scope, _, own = name.rpartition(".")
    if not any_name and (not own.startswith("_") or own.startswith("__")):
        raise SpliceError(
            f"{filename}: expected a function {name}, got none; was it renamed? The file was left as it is."
        )
    siblings = list(_parts(source, "<string>"))
    before = [sibling for sibling in siblings[: siblings.index(name)] if sibling in parts and _scope(sibling) == scope]
    if scope and scope not in parts:
        raise SpliceError(
            f"{filename}: expected a class {scope}, got none; was it renamed? The file was left as it is."
        )
    place = parts[before[-1]].end if before else parts[scope].end if scope else len(lines)
    lines.insert(place, newline * (1 if scope else 2) + new)
    return "".join(lines)


def _without(target: str, part: _Part) -> str:
    lines = lines_of(target)
    start = part.start
    while start and not lines[start - 1].strip():
        start -= 1
    del lines[start : part.end]
    return "".join(lines)


def _with_imports(target: str, source: str, names: list[str]) -> str:
    """The target with the source's imports of what the functions `names` use and the target does not define."""
    bound = _bound_names(target)
    used = set().union(*(names_in(ast.parse(dedent(code_of(source, name)))) for name in names)) if names else set()
    missing = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            aliases = [a for a in statement.names if (n := _bound_name(a)) in used and n not in bound]
            if aliases:
                statement.names = aliases
                missing.append(ast.unparse(statement))
    if not missing:
        return target
    body = ast.parse(target).body
    imports = [statement for statement in body if isinstance(statement, ast.Import | ast.ImportFrom)]
    lines = lines_of(target)
    after = imports[-1].end_lineno if imports else (body[0].end_lineno if body else 0)
    lines[after:after] = [line + newline_of(lines) for line in missing]
    return "".join(lines)


def _bound_names(source: str) -> set[str]:
    names: set[str] = set()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names |= {_bound_name(alias) for alias in statement.names}
        elif isinstance(statement, Definition):
            names.add(statement.name)
        else:
            names |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return names


def _bound_name(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _parts(source: str, filename: str) -> dict[str, _Part]:
    """What a module defines at its top and in its classes, by qualified name, in order."""
    try:
        tree = parse(source, filename)
    except StubError as error:
        raise SpliceError(f"{error}; the file was left as it is. Mend the syntax error first.") from error
    return dict(_parts_in(tree, lines_of(source), ""))


def _parts_in(scope: ast.Module | ast.ClassDef, lines: list[str], prefix: str) -> Iterator[tuple[str, _Part]]:
    for statement in scope.body:
        name = defined_name(statement)
        if name:
            start = first_line(statement)
            while start and lines[start - 1].startswith(f"{indent_of(lines[start])}#"):
                start -= 1
            yield prefix + name, _Part(start, statement.end_lineno or start + 1, statement)
        if isinstance(statement, ast.ClassDef):
            yield from _parts_in(statement, lines, f"{prefix}{name}.")


def _scope(name: str) -> str:
    return name.rpartition(".")[0]
