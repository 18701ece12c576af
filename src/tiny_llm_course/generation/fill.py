"""Fills in stubs for `--fill`: a learner's package runs the reference's code wherever the learner's code is
still a stub.

The modules are merged in memory when they are imported. No file is written.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import os
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import CodeType, ModuleType

from ..base.packages import REFERENCE
from ..learner.progress import SKIPPED
from ..learner.workspace import Workspace
from ..model.needs import is_written
from ..tasks.syllabus import TaskId, day_of, parse_task_ids
from ..tasks.task_code import Definition, defined_name, parse, task_parts
from ..tasks.unsolved import is_stub, unsolved
from ..ui import CommandError, Messages

__all__ = ["Filled", "fill_in"]

PACKAGE = "tiny_llm"
KERNELS = f"{PACKAGE}.kernels."
SUFFIX = "_of_reference"  # for the reference's helpers, since the learner's helpers may have the same names


def fill_in(workspace: Workspace, words: Messages) -> Filled:
    """From now on, put the reference's code in place of stubs whenever a module of the package is imported.

    Raises:
        CommandError: there is no reference.
    """
    if not workspace.has_solutions:
        raise CommandError("fill_withheld", exit_code=1)
    assert PACKAGE not in sys.modules
    sys.meta_path.insert(0, _Finder(workspace))
    return Filled(workspace, words)


class Filled:
    """The tasks that were filled in."""

    def __init__(self, workspace: Workspace, words: Messages):
        self._workspace, self._words = workspace, words
        self._open = {stub.task for stub in unsolved(workspace.package)}

    def told(self, needed: Collection[TaskId]) -> str:
        """Name the needed tasks that run the learner's code, and say how many tasks run the reference's code. A skipped
        task runs the reference's code."""
        skipped = {task for task in needed if self._workspace.state(task) == SKIPPED}
        mine = sorted(set(needed) - self._open - skipped)
        if not mine:
            return self._words("fill_nothing", count=len(needed))
        if len(mine) == len(needed):
            return self._words("fill_everything", count=len(mine))
        return self._words("fill_some", mine=", ".join(self._names(mine)), count=len(needed) - len(mine))

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Explain the errors that the reference's code raises because of a value from the learner's code."""
        try:
            yield
        except FloatingPointError as error:  # the logits are not finite, because of a task's code or the weights
            raise CommandError("not_finite_mine", exit_code=1) from error
        except Exception as error:
            packages = self._workspace.package, self._workspace.reference
            frames = [
                frame
                for frame in traceback.extract_tb(error.__traceback__)
                if any(Path(frame.filename).is_relative_to(package) for package in packages)
            ]
            if not frames or Path(frames[-1].filename).is_relative_to(self._workspace.package):
                raise
            place = f"{os.path.relpath(frames[-1].filename)}:{frames[-1].lineno}"
            what = "".join(traceback.format_exception_only(error)).rstrip(" .\n")
            raise CommandError("fill_broken", place=place, error=what, exit_code=1) from error

    def _names(self, mine: Sequence[TaskId]) -> Iterator[str]:
        """Yield the names of tasks. If all tasks of a day are solved, the day is named instead."""
        for (week, number), tasks in groupby(mine, key=lambda task: (task.week, task.day)):
            of_day = list(tasks)
            states = [self._workspace.state(task) for task in of_day]
            if all(states) and len(of_day) == len(day_of(of_day[0]).tasks):
                yield f"w{week}d{number}"
                continue
            for task, state in zip(of_day, states, strict=True):
                yield str(task) if state else self._words("fill_untested", task=task)


class _Finder(importlib.abc.MetaPathFinder):
    """A finder whose loader puts the reference's code in place of stubs in the learner's modules."""

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._stubs = unsolved(workspace.package)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != PACKAGE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return spec
        file = Path(spec.origin)
        if fullname.startswith(KERNELS) and not is_written(file.stem, self._stubs):
            spec.loader = _TheReferences(fullname)
        elif any(stub.file == file for stub in self._stubs):
            reference = self._workspace.reference / file.relative_to(self._workspace.package)
            spec.loader = _Loader(fullname, str(file), reference)
        return spec


class _TheReferences(importlib.machinery.SourceFileLoader):
    """A loader that returns the reference's module of a kernel instead of the learner's, so that the kernel's Python
    and C++ both come from the reference."""

    def __init__(self, fullname: str):
        super().__init__(fullname, "")
        self._name = fullname.replace(PACKAGE, REFERENCE, 1)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return import_module(self._name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing, because the reference's module has already been executed."""


class _Loader(importlib.machinery.SourceFileLoader):
    """A loader that merges a module from two files. Tracebacks name the file from which each line comes."""

    def __init__(self, fullname: str, path: str, reference: Path):
        super().__init__(fullname, path)
        self._reference = reference

    def get_code(self, fullname: str) -> CodeType:
        return merged(Path(self.path), self._reference)


def merged(file: Path, reference: Path) -> CodeType:
    """Return the code of a module in which the reference's functions replace stubs. A class that is one task is
    replaced as a whole."""
    source = reference.read_text(encoding="utf-8")
    yours, theirs = parse(file.read_text(encoding="utf-8-sig"), str(file)), parse(source, str(reference))
    filled: set[str] = set()
    for name, unit in _units(theirs):
        body = _body(yours, name)
        for i, node in enumerate(body):
            if defined_name(node) == unit.name and is_stub(node):
                body[i] = unit
                filled.add(name)
    filled |= _put_helpers(yours, theirs, source, filled)
    _put_imports(yours, theirs)
    code = compile(yours, str(file), "exec", dont_inherit=True)
    return _with_places(code, "", filled, str(reference))


def _units(scope: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield the qualified name and definition of each function or class whose docstring has task ids. A class with
    task ids is yielded as a whole."""
    for node in scope.body:
        if isinstance(node, Definition):
            if parse_task_ids(ast.get_docstring(node)):
                yield prefix + node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from _units(node, f"{prefix}{node.name}.")


def _body(tree: ast.Module, name: str) -> list[ast.stmt]:
    """Return the body of the module or class that contains the definition with this qualified name."""
    body = tree.body
    for outer in name.split(".")[:-1]:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == outer), [])
    return body


def _put_helpers(yours: ast.Module, theirs: ast.Module, source: str, filled: set[str]) -> set[str]:
    """Add the helpers that the reference's code needs and that stubs leave out, under new names. Use the new names in
    the reference's code, and return the new names."""
    units = {name: unit for name, unit in _units(theirs) if name in filled}
    ids = {task for unit in units.values() for task in parse_task_ids(ast.get_docstring(unit))}
    tagged = {name for name, _ in _units(theirs)}
    parts = dict.fromkeys(name for task, names in task_parts(source).items() if task in ids for name in names)
    helpers = [name for name in parts if name not in tagged and name.rpartition(".")[0] not in tagged]
    renaming = _Renaming({name.rpartition(".")[2] for name in helpers})
    for unit in units.values():
        renaming.visit(unit)
    for name in helpers:
        (helper,) = (node for node in _body(theirs, name) if defined_name(node) == name.rpartition(".")[2])
        renaming.visit(helper)
        _body(yours, name).append(helper)  # at the end, after everything that the helper's annotations name
    return {name + SUFFIX for name in helpers}


class _Renaming(ast.NodeTransformer):
    """A transformer that renames helpers where they are defined and used."""

    def __init__(self, names: Collection[str]):
        self._names = names

    def visit(self, node: ast.AST) -> ast.AST:
        match node:
            case ast.Name(id=name) if name in self._names:
                node.id += SUFFIX
            case ast.Attribute(attr=name) if name in self._names:
                node.attr += SUFFIX
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) if (
                name in self._names
            ):
                node.name += SUFFIX
        return self.generic_visit(node)


def _put_imports(yours: ast.Module, theirs: ast.Module) -> None:
    """Put the reference's imports before the learner's code, so that a name that both modules bind has the learner's
    value."""
    first = next((i for i, node in enumerate(yours.body) if not _stands_first(node)), len(yours.body))
    imports = (node for node in theirs.body if isinstance(node, ast.Import | ast.ImportFrom))
    yours.body[first:first] = [node for node in imports if not _stands_first(node)]


def _stands_first(node: ast.stmt) -> bool:
    """Tell whether a statement is the docstring, or a `__future__` import, which Python requires at the top."""
    is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
    return is_future or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _with_places(code: CodeType, prefix: str, filled: set[str], file: str) -> CodeType:
    """Return the same code, with `file` as the source of everything that was filled in."""
    parts = []
    for part in code.co_consts:
        if isinstance(part, CodeType):
            name = prefix + part.co_name
            part = _from_file(part, file) if name in filled else _with_places(part, f"{name}.", filled, file)
        parts.append(part)
    return code.replace(co_consts=tuple(parts))


def _from_file(code: CodeType, file: str) -> CodeType:
    parts = (_from_file(part, file) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(parts))
