"""Reads a module's imports, adds missing imports, and adapts imports to another folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from pathlib import PurePosixPath

from .task_code import Definition, lines_of, newline_of

__all__ = ["bound_names", "imported_names", "redirected", "relative_module", "relocated", "with_imports"]

FROM = re.compile(r"from\s*\.[\w.]*")


def with_imports(target: str, source: str, names: Collection[str]) -> str:
    """Return the target with the source's imports of these names, except for names that the target itself binds."""
    wanted = set(names) - bound_names(target)
    missing = []
    for statement in _imports(ast.parse(source).body):
        if aliases := [alias for alias in statement.names if _bound(alias) in wanted]:
            statement.names = aliases
            missing.append(ast.unparse(statement))
    if not missing:
        return target
    lines = lines_of(target)
    after = _end_of_imports(ast.parse(target).body)
    lines[after:after] = [line + newline_of(lines) for line in missing]
    return "".join(lines)


def imported_names(source: str) -> set[str]:
    """Return the names that the imports at the top of a module bind."""
    return {_bound(alias) for statement in _imports(ast.parse(source).body) for alias in statement.names}


def bound_names(source: str) -> set[str]:
    """Return the names that a module binds at its top level, including those in an `if` or a `try`."""
    names: set[str] = set()
    for statement in ast.parse(source).body:
        for node in [statement] if isinstance(statement, Definition) else ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names |= {_bound(alias) for alias in node.names}
            elif isinstance(node, Definition):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names


def relocated(source: str, old: str, new: str) -> str:
    """Return a module's source with its relative imports adapted to another place in the package, so that they find the
    same modules.

    old, new: the module's paths in the package, such as serving/cache.py.
    """
    here, there = PurePosixPath(old).parent.parts, PurePosixPath(new).parent.parts
    lines = lines_of(source)
    for node in ast.walk(ast.parse(source)) if here != there else ():
        if isinstance(node, ast.ImportFrom) and node.level:
            target = (*here[: len(here) - node.level + 1], *filter(None, (node.module or "").split(".")))
            lines[node.lineno - 1] = FROM.sub(f"from {_relative(target, there)}", lines[node.lineno - 1], count=1)
    return "".join(lines)


def redirected(source: str, path: str, places: Mapping[str, str]) -> str:
    """Return a module's source with updated imports: a file that has left the package is imported under its new module
    name.

    path: the module's path in the package. places: the new modules, such as `tiny_llm_given.config`, keyed by the
    files' old paths in the package. Imports have the form `from .config import ModelConfig` or `from . import config`.
    """
    here, lines = PurePosixPath(path).parent.parts, lines_of(source)
    for node in sorted(ast.walk(ast.parse(source)), key=lambda node: getattr(node, "lineno", 0), reverse=True):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        target = (*here[: len(here) - node.level + 1], *filter(None, (node.module or "").split(".")))
        if place := places.get("/".join(target) + ".py"):
            lines[node.lineno - 1] = FROM.sub(f"from {place}", lines[node.lineno - 1], count=1)
            continue
        moved: dict[str, list[ast.alias]] = {}
        led: set[str] = set()
        for alias in node.names:
            if place := places.get("/".join((*target, f"{alias.name}.py"))):
                package, _, module = place.rpartition(".")
                known_as = alias.asname or (alias.name if alias.name != module else None)
                moved.setdefault(package, []).append(ast.alias(module, known_as))
                led.add(alias.name)
        if not moved:
            continue
        left = [alias for alias in node.names if alias.name not in led]
        old = [ast.ImportFrom(node.module, left, node.level)] if left else []
        new = [ast.ImportFrom(package, names, 0) for package, names in moved.items()]
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last - 1].encode()[node.end_col_offset :].decode()
        separator = "; " if before.strip() else newline_of(lines) + before
        lines[first:last] = [before + separator.join(map(ast.unparse, [*new, *old])) + after]
    return "".join(lines)


def relative_module(path: str, importer: str) -> str:
    """Return the relative module name by which the file `importer` imports the file `path`, such as `..basics`. Both
    arguments are paths in the package."""
    return _relative(PurePosixPath(path).with_suffix("").parts, PurePosixPath(importer).parent.parts)


def _relative(target: tuple[str, ...], folder: tuple[str, ...]) -> str:
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(target, folder, strict=False)))
    return "." * (len(folder) - shared + 1) + ".".join(target[shared:])


def _imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    return (statement for statement in body if isinstance(statement, ast.Import | ast.ImportFrom))


def _end_of_imports(body: list[ast.stmt]) -> int:
    """Return the index of the line after the imports that precede all definitions. Without such imports, return the
    index of the line after the docstring."""
    head = list(takewhile(lambda statement: not isinstance(statement, Definition), body))
    last = [*head[:1], *_imports(head)][-1:]
    return last[0].end_lineno or 0 if last else 0


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]
