"""The reference with a mistake of the catalogue in it, as a package that can be imported beside the others."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from .catalogue import Mistake
from .splice import code_of
from .syllabus import TaskId
from .task_code import task_parts

__all__ = ["CatalogueError", "mistaken_package", "mistaken_sources"]


class CatalogueError(Exception):
    """Why a mistake cannot be made, in words for the catalogue's author."""


def mistaken_sources(reference: Path, task: TaskId, mistake: Mistake) -> dict[str, str]:
    """The modules that a mistake changes, by name: their new text.

    Raises:
        CatalogueError: what an edit replaces does not stand exactly once in the task's code.
    """
    parts = [(module, code, code) for module, code in _code(reference, task)]  # module, before, after
    for old, new in mistake.edits:
        count = sum(code.count(old) for _, _, code in parts)
        if count != 1:
            raise CatalogueError(
                f"{task} {mistake.id}: expected {old!r} once in the task's code, found it {count} times"
            )
        parts = [(module, before, code.replace(old, new)) for module, before, code in parts]
    changed: dict[str, str] = {}
    for module, before, code in parts:
        if code != before:
            changed[module] = changed.get(module, _sources(reference)[module]).replace(before, code)
    return changed


@cache
def _sources(reference: Path) -> dict[str, str]:
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(reference.glob("*.py"))}


@cache
def _code(reference: Path, task: TaskId) -> list[tuple[str, str]]:
    """The task's functions and helpers: module and code."""
    return [
        (module, code_of(source, name))
        for module, source in _sources(reference).items()
        for name in task_parts(source).get(task, [])
    ]


def mistaken_package(reference: Path, task: TaskId, mistake: Mistake) -> str:
    """Make the package importable; return its name."""
    name = f"mistaken_{task}_{mistake.id}".replace(".", "_").replace("-", "_")
    if not any(isinstance(finder, _Finder) and finder.package == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, reference, mistaken_sources(reference, task, mistake)))
    return name


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Loads the modules of one package: from memory what was changed, else from the reference."""

    def __init__(self, package: str, reference: Path, changed: dict[str, str]):
        self.package = package
        self._reference = reference
        self._changed = changed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != self.package:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=self.is_package(fullname))

    def is_package(self, fullname: str) -> bool:
        return fullname == self.package or (self._reference / fullname.partition(".")[2].replace(".", "/")).is_dir()

    def get_source(self, fullname: str) -> str:
        module = fullname.partition(".")[2]
        if module in self._changed:
            return self._changed[module]
        path = self._reference / module.replace(".", "/")
        file = path / "__init__.py" if self.is_package(fullname) else path.with_suffix(".py")
        try:
            return file.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise ImportError(f"no module {fullname}") from error
