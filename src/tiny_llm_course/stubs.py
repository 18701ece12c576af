"""Stubs: the learner's package, which is the reference without what its tasks ask for."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from .syllabus import TaskId, parse_task_ids, weeks

__all__ = ["StubError", "check_stubs", "make_stub", "write_stubs"]

LINE_LENGTH = 120  # as in pyproject.toml, so that stubs look formatted

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"


class StubError(Exception):
    """Why stubs cannot be made or written, in words for whoever asked for them."""


def make_stub(
    source: str, *, is_solved: Callable[[TaskId], bool] = lambda task_id: False, filename: str = "<string>"
) -> str:
    """The source of a module with the bodies of its unsolved tasks cut.

    A function, method or class is a task when its docstring's last line is `Task: w1d1.2` (or several ids); it is cut
    while any of them is unsolved. A class's tag is that of its public methods. Private helpers that only cut code uses
    are dropped, `_check_*` never. All else is kept as it is, byte for byte.

    Raises:
        StubError: a syntax error, or a task id that is malformed or not in the syllabus; names filename and line.
    """
    try:
        tree = ast.parse(source, filename)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        raise StubError(f"{filename}:{getattr(error, 'lineno', None) or 1}: {error}") from error
    survey = _Survey(is_solved, filename)
    survey.visit(tree)
    lines = _Lines(source)
    lines.drop(survey.unneeded_helpers())
    for function, message in survey.cuts:
        lines.cut(function, message)
    return "".join(lines.lines)


def write_stubs(reference: Path, out: Path, manifest: Path) -> list[str]:
    """Make `out` the stubs of `reference`; return what was done, a line for each file.

    The manifest holds the hash of each stub as it was last written; a file that has another hash is a learner's work.

    Raises:
        StubError: a file of `out` was edited, or a reference file is at fault. Nothing was written.
    """
    plan = _Plan(reference, out, manifest)
    if plan.edited:
        raise StubError(_refusal([out / path for path in plan.edited]))
    for path in plan.stale:
        _replace(out / path, plan.stubs[path].encode())
    for path in plan.orphaned:
        (out / path).unlink()
    # Last: whatever was interrupted before, each file is either as the old manifest says or as its new stub.
    if plan.manifest_is_stale:
        _replace(manifest, (json.dumps(plan.new_hashes, indent=2, sort_keys=True) + "\n").encode())
    return [f"wrote {out / path}" for path in plan.stale] + [f"deleted {out / path}" for path in plan.orphaned]


def check_stubs(reference: Path, out: Path, manifest: Path) -> list[str]:
    """What keeps `out` and the manifest from being the stubs of `reference`, a line for each file; writes nothing.

    Raises:
        StubError: a reference file is at fault.
    """
    plan = _Plan(reference, out, manifest)
    problems = [f"edited: {out / path}" for path in plan.edited]
    problems += [f"{'stale' if (out / path).exists() else 'missing'}: {out / path}" for path in plan.stale]
    problems += [f"left over, its reference file is gone: {out / path}" for path in plan.orphaned]
    return problems + ([f"stale: {manifest}"] if plan.manifest_is_stale else [])


class _Survey(ast.NodeVisitor):
    """Finds the functions to cut and the helpers of a module, and which names each part of it uses."""

    def __init__(self, is_solved: Callable[[TaskId], bool], filename: str):
        self.cuts: list[tuple[Function, str]] = []  # with the error's message
        self._is_solved = is_solved
        self._filename = filename
        self._helpers: dict[ast.stmt, set[str]] = {}  # with the names it defines
        self._uses: defaultdict[ast.stmt | str, set[str]] = defaultdict(set)  # by owner: "kept", "cut" or a helper
        self._owner: ast.stmt | str = "kept"
        self._path: tuple[str, ...] = ()
        self._class_task: TaskId | None = None

    def unneeded_helpers(self) -> list[ast.stmt]:
        """Helpers that cut code leads to and kept code does not."""
        suspects = self._reach(self._uses["cut"])
        others = [self._uses[helper] for helper in self._helpers if helper not in suspects]
        needed = self._reach(self._uses["kept"].union(*others))
        return [helper for helper in suspects if helper not in needed]

    def _reach(self, names: Iterable[str]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        known = set(names)
        while new := [helper for helper, own in self._helpers.items() if helper not in found and own & known]:
            found += new
            known = known.union(*(self._uses[helper] for helper in new))
        return found

    def visit_Module(self, node: ast.Module) -> None:
        for statement in node.body:
            self._visit_member(statement, _private_names(statement))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(part)
        ids = self._task_ids(node)
        outer = self._path, self._class_task
        self._path, self._class_task = (*self._path, node.name), self._first_open(ids) if ids else self._class_task
        methods = {member: _private_names(member) for member in node.body if isinstance(member, Function.__args__)}
        if all(methods.get(member) for member in node.body):
            methods = {}  # a class needs a body
        for member in node.body:
            self._visit_member(member, methods.get(member, set()))
        self._path, self._class_task = outer

    def _visit_member(self, node: ast.stmt, helper_names: set[str]) -> None:
        if self._owner != "kept" or not helper_names or any(self._task_ids(part) for part in ast.walk(node)):
            self.visit(node)
            return
        self._helpers[node] = helper_names
        if self._class_task:
            self._uses["cut"] |= helper_names  # a private method goes with the class's other methods
        self._owner = node
        self.visit(node)
        self._owner = "kept"

    def visit_FunctionDef(self, node: Function) -> None:
        ids = self._task_ids(node)
        inherited = None if _is_private(node.name) else self._class_task
        task_id = self._first_open(ids) if ids else inherited
        outer = self._path, self._class_task, self._owner
        self._path, self._class_task = (*self._path, node.name), None
        if task_id:
            self.cuts.append((node, _message(task_id, ".".join(self._path))))
        for name, part in ast.iter_fields(node):
            self._owner = "cut" if task_id and name == "body" else outer[2]
            for child in part if isinstance(part, list) else [part]:
                if isinstance(child, ast.AST):
                    self.visit(child)
        self._path, self._class_task, self._owner = outer

    visit_AsyncFunctionDef = visit_FunctionDef
