"""Copies definitions and imports from one module into another, along with the definitions that the copied code uses."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Mapping

from ..tasks.imports import bound_names, imported_names, with_imports
from ..tasks.splice import names_used, parts_of_source, put, scope_of, without
from ..tasks.task_code import names_in
from .written import tasks_by_name

__all__ = ["helpers_of", "with_all", "with_arrived", "with_own"]


def with_all(target: str, source: str, names: Collection[str]) -> str:
    """Return the target with the definitions in `names` that the target lacks so far. If the target lacks a method's
    class, the whole class is added."""
    for name in names:
        while (scope := scope_of(name)) and scope not in parts_of_source(target):
            name = scope
        if name not in parts_of_source(target):
            target = put(target, source, name, any_name=True)
    return target


def with_own(merged: str, yours: str, stubs: tuple[str, str], mine: list[str], left: Mapping[str, str]) -> str:
    """Return the merged text with everything that the learner defined and imported, and with given code that the course
    removed but the learner uses. If the text uses a task that moved to another file, the task is imported.

    stubs: the old stub and the new one. mine: the tasks that the learner wrote. left: task that moved -> the task's new
    module.
    """
    old, new = stubs
    for name in left:
        if name in (parts := parts_of_source(merged)):
            merged = without(merged, parts[name])
    given = parts_of_source(old)
    own = [name for name in parts_of_source(yours) if name not in given or name in mine]
    merged = with_all(merged, yours, [name for name in own if name not in left])
    while needed := _needed(merged, yours, left, unless_in=new):
        merged = with_all(merged, yours, needed)
    used = names_in(ast.parse(merged))
    merged = with_imports(merged, yours, used | imported_names(yours) - imported_names(old))
    for name, module in left.items():
        merged = with_imports(merged, f"from {module} import {name.partition('.')[0]}", used)
    return merged


def with_arrived(merged: str, arrived: Mapping[str, str]) -> str:
    """Return the merged text with the helpers and imports that the tasks in `arrived` used in their old files.

    arrived: task -> the source of its old file.
    """
    for source in dict.fromkeys(arrived.values()):
        reached = helpers_of(source, [name for name, text in arrived.items() if text == source])
        while needed := [name for name in _needed(merged, source) if name in reached]:
            merged = with_all(merged, source, needed)
        merged = with_imports(merged, source, names_used(source, reached))
    return merged


def _needed(target: str, source: str, excluded: Collection[str] = (), unless_in: str = "") -> list[str]:
    """Return the names of the source's definitions that the target uses but lacks. A name counts as used if it occurs
    in the target more often than in `unless_in`."""
    parts, used, bound = parts_of_source(target), _uses(target) - _uses(unless_in), bound_names(target)
    return [
        name
        for name in parts_of_source(source)
        if name not in {*parts, *excluded}
        and (f".{name.rpartition('.')[2]}" in used if scope_of(name) else name in used and name not in bound)
        and (not scope_of(name) or scope_of(name) in parts)
    ]


def _uses(source: str) -> Counter[str]:
    """Count how often a module uses each name and each attribute. Attributes are counted with a dot before their
    names."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = [node.value for node in nodes if isinstance(node, ast.Expr)]
    names: list[str] = []
    for node in nodes:
        match node:
            case ast.Name(id=name):
                names.append(name)
            case ast.Attribute(attr=name):
                names.append(f".{name}")
            case ast.Constant(value=str(text)) if node not in docstrings:  # an annotation, or a name in `__all__`
                names += re.findall(r"\w+", text)
    return Counter(names)


def helpers_of(source: str, names: Collection[str]) -> set[str]:
    """Return the names of these functions, and of all definitions in their module that the functions use, directly or
    indirectly. Functions that belong to other tasks are left out."""
    stop = {*tasks_by_name(source, "<string>")}
    helpers: set[str] = set()
    new = set(names)
    while new:
        helpers |= new
        used = names_used(source, new)
        new = {name for name in parts_of_source(source) if name.rpartition(".")[2] in used} - helpers - stop
    return helpers
