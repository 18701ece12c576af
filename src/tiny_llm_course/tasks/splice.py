"""Copies the code of tasks from one source into another. Everything else stays the same, byte for byte."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .imports import with_imports
from .regions import is_native, regions, with_regions
from .source_text import Indent, reindented, unit_of
from .syllabus import TaskId
from .task_code import (
    Definition,
    StubError,
    defined_name,
    first_line,
    indent_of,
    lines_of,
    names_in,
    newline_of,
    parse,
)

__all__ = [
    "Part",
    "SpliceError",
    "UnfitError",
    "all_parts",
    "check_fits",
    "code_of",
    "definitions",
    "excerpt",
    "names_used",
    "parts_of_source",
    "put",
    "regions_of",
    "restore",
    "scope_of",
    "splice",
    "without",
]


class SpliceError(Exception):
    """An error that tells the author of a file why the file was not changed."""


class UnfitError(SpliceError):
    """The error raised when pieces of code do not fit together. If the result would not be valid Python, `__cause__`
    names the faulty line."""


@dataclass(frozen=True)
class Part:
    """The place of a definition: the lines from `start` up to but not including `end`. Decorators and the comments
    directly before the definition belong to the part."""

    start: int
    end: int
    node: ast.stmt


def definitions(source: str) -> list[str]:
    """Return the qualified names of a module's definitions. Raises a SpliceError if the module cannot be parsed."""
    return list(parts_of_source(source))


def code_of(source: str, name: str) -> str:
    """Return the text of the function, method or constant with this qualified name. Raises a KeyError if the source has
    no such definition."""
    part = parts_of_source(source)[name]
    return "".join(lines_of(source)[part.start : part.end])


def excerpt(source: str, names: Collection[str]) -> str:
    """Return a module with only these definitions, in the source's order, and the imports that the definitions need. A
    method follows the head of its class."""
    parts, lines = parts_of_source(source), lines_of(source)
    chosen = [name for name in parts if name in names and scope_of(name) not in names]
    text, last = with_imports("", source, names_used(source, chosen)), ""
    for name in chosen:
        scope = scope_of(name)
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
    """Return `target` with the functions `names` of `source`, and with the imports that these functions need.

    A private helper that the target lacks is added; a helper that `source` lacks is removed if nothing in the result
    uses it. In C++ and Metal, `names` are the task ids of regions. `filename` is the target's name.

    Raises:
        SpliceError: the target has a syntax error, or lacks one of these functions or regions.
        UnfitError: the result has a syntax error.
    """
    if is_native(filename):
        return _splice_regions(target, source, names, filename)
    wanted = parts_of_source(source)
    if target and not target.endswith("\n"):
        target += "\n"
    for name in names:
        if name in wanted:
            target = put(target, source, name, filename)
    target = _without_unused(target, [name for name in names if name not in wanted], filename)
    check_fits(target, filename)
    return with_imports(target, source, names_used(source, [name for name in names if name in wanted]))


def _without_unused(target: str, names: list[str], filename: str) -> str:
    """Return the target without the definitions in `names` that nothing uses. A use in a definition that is itself
    removed does not count."""
    for name in names:
        if name in (parts := parts_of_source(target, filename)):
            rest = without(target, parts[name])
            if name.rpartition(".")[2] not in names_in(ast.parse(rest)):
                return _without_unused(rest, names, filename)
    return target


def restore(target: str, source: str, names: list[str], filename: str) -> str:
    """Add to `target` those functions in `names` that `target` lacks, and return the result. The functions come from
    `source`. Everything else stays the same.

    Raises:
        SpliceError: the target has a syntax error, or lacks a class.
    """
    if is_native(filename):
        return target
    wanted = parts_of_source(source)
    for name in names:
        if name in wanted and name not in parts_of_source(target, filename):
            target = put(target, source, name, filename, any_name=True)
    return target


def _splice_regions(target: str, source: str, names: list[str], filename: str) -> str:
    places = regions_of(target, filename)
    texts = {task: text for task, text in regions(source, filename).items() if str(task) in names}
    for task in texts:
        if task not in places:
            raise SpliceError(
                f"{filename}: expected `// task {task} begin` and `// task {task} end`; the file was left as it is."
            )
    return with_regions(target, texts, filename)


def regions_of(source: str, filename: str) -> dict[TaskId, str]:
    """Return the regions of a learner's file, keyed by task. Raises a SpliceError if the file's markers are faulty."""
    try:
        return regions(source, filename)
    except StubError as error:
        raise SpliceError(f"{error}; the file was left as it is.") from error


def put(target: str, source: str, name: str, filename: str = "<string>", any_name: bool = False) -> str:
    """Return `target` with one definition taken from `source`, in the target's indentation.

    any_name: whether to add a definition that the target lacks even if the definition is public.

    Raises:
        SpliceError: the target has a syntax error, or lacks a class, or a public function that may not be added.
    """
    lines, parts = lines_of(target), parts_of_source(target, filename)
    if name in parts:
        part = parts[name]
        lines[part.start : part.end] = _written(source, name, target, first_line(part.node), part.node)
        return "".join(lines)
    scope, _, own = name.rpartition(".")
    if not any_name and (not own.startswith("_") or own.startswith("__")):
        raise SpliceError(
            f"{filename}: expected a function {name}, got none; was it renamed? The file was left as it is."
        )
    if scope and scope not in parts:
        raise SpliceError(
            f"{filename}: expected a class {scope}, got none; was it renamed? The file was left as it is."
        )
    siblings = list(parts_of_source(source))
    before = [
        sibling for sibling in siblings[: siblings.index(name)] if sibling in parts and scope_of(sibling) == scope
    ]
    place = parts[before[-1]].end if before else parts[scope].end if scope else len(lines)
    outer = parts[scope].node if scope else None
    inside = first_line(outer.body[0]) if isinstance(outer, ast.ClassDef) else None
    lines[place:place] = [newline_of(lines)] * (1 if scope else 2) + _written(source, name, target, inside, outer)
    return "".join(lines)


def _written(source: str, name: str, target: str, line: int | None, node: ast.stmt | None) -> list[str]:
    """Return the lines of a definition, with the indentation that the target has at `line`. The body's indentation unit
    is taken from `node`, a statement of the target."""
    part = parts_of_source(source)[name]
    old = Indent(indent_of(lines_of(source)[first_line(part.node)]), _unit(part.node, source))
    new = Indent("" if line is None else indent_of(lines_of(target)[line]), _unit(node, target))
    newline = newline_of(lines_of(target))
    return [text.rstrip("\r\n") + newline for text in reindented(source, old, new)[part.start : part.end]]


def _unit(node: ast.stmt | None, source: str) -> str:
    return unit_of(node if isinstance(node, Definition) else ast.parse(source), source)


def check_fits(source: str, filename: str) -> None:
    """Raise an UnfitError if the source is not valid Python."""
    try:
        parse(source, filename)
    except StubError as error:
        raise UnfitError(f"{error}; the file was left as it is.") from error


def without(target: str, part: Part) -> str:
    """Return the target without a definition and the blank lines before it."""
    lines = lines_of(target)
    start = part.start
    while start and not lines[start - 1].strip():
        start -= 1
    del lines[start : part.end]
    return "".join(lines)


def names_used(source: str, names: Collection[str]) -> set[str]:
    """Return the identifiers that these definitions use."""
    parts = parts_of_source(source)
    return set().union(*(names_in(parts[name].node) for name in names))


def parts_of_source(source: str, filename: str = "<string>") -> dict[str, Part]:
    """Return the definitions at the top level of a module and in its classes, keyed by qualified name, in order. If a
    name is defined more than once, the last definition counts."""
    return dict(all_parts(source, filename))


def all_parts(source: str, filename: str = "<string>") -> list[tuple[str, Part]]:
    """Return the definitions at the top level of a module and in its classes, each with its qualified name, in
    order."""
    try:
        tree = parse(source, filename)
    except StubError as error:
        raise SpliceError(f"{error}; the file was left as it is. Mend the syntax error first.") from error
    return list(_parts_in(tree, lines_of(source), ""))


def _parts_in(scope: ast.Module | ast.ClassDef, lines: list[str], prefix: str) -> Iterator[tuple[str, Part]]:
    for statement in scope.body:
        name = defined_name(statement)
        if name:
            start = first_line(statement)
            while start and lines[start - 1].startswith(f"{indent_of(lines[start])}#"):
                start -= 1
            yield prefix + name, Part(start, statement.end_lineno or start + 1, statement)
        if isinstance(statement, ast.ClassDef):
            yield from _parts_in(statement, lines, f"{prefix}{name}.")


def scope_of(name: str) -> str:
    """Return the class part of a qualified name. Return "" if the name has no class part."""
    return name.rpartition(".")[0]
