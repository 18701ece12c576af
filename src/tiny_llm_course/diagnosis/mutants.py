"""Mutants: copies of the reference, each with one mistake from the catalogue and with a package name of its own."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ..base.whole_files import write_whole
from ..catalogue import Mistake
from ..tasks.regions import BUILT, code_files, is_native, regions, with_regions
from ..tasks.splice import code_of
from ..tasks.syllabus import TaskId, day_of
from ..tasks.task_code import task_parts

__all__ = [
    "CatalogueError",
    "compile_mistakes",
    "done_in_time",
    "is_in_kernels",
    "is_in_metal",
    "mutant_package",
    "mutant_sources",
]

Each = TypeVar("Each")

QUICK = "-O1"  # halves the compile time of -O3


class CatalogueError(Exception):
    """An error in the catalogue: the edits of a mistake do not fit the reference. The catalogue's author reads the
    message."""


def mutant_sources(reference: Path, task: TaskId, mistake: Mistake) -> dict[str, str]:
    """Return the new text of each file that a mistake changes, keyed by path in the package.

    Raises:
        CatalogueError: the text that an edit replaces does not occur exactly once in the task's code.
    """
    parts = [(path, code, code) for path, code in _code(reference, task)]  # path, code before edits, code after edits
    for old, new in mistake.edits:
        count = sum(code.count(old) for _, _, code in parts)
        if count != 1:
            raise CatalogueError(
                f"{task} {mistake.id}: expected {old!r} once in the task's code, found it {count} times"
            )
        parts = [(path, before, code.replace(old, new)) for path, before, code in parts]
    changed: dict[str, str] = {}
    for path, before, code in parts:
        source = changed.get(path, _sources(reference)[path])
        if code != before:
            native = is_native(path)
            changed[path] = with_regions(source, {task: code}, path) if native else source.replace(before, code)
    return changed


@cache
def _sources(reference: Path) -> dict[str, str]:
    return {file.relative_to(reference).as_posix(): file.read_text(encoding="utf-8") for file in code_files(reference)}


@cache
def _code(reference: Path, task: TaskId) -> list[tuple[str, str]]:
    """Return the path and the code of each of the task's functions, helpers and regions."""
    code_by_path: list[tuple[str, str]] = []
    for path, source in _sources(reference).items():
        if is_native(path):
            code_by_path += [(path, code) for of, code in regions(source, path).items() if of == task]
        else:
            code_by_path += [(path, code_of(source, name)) for name in task_parts(source).get(task, [])]
    return code_by_path


def is_in_kernels(reference: Path, task: TaskId) -> bool:
    """Tell whether a task is written in C++ or Metal."""
    return any(is_native(path) for path, _ in _code(reference, task))


def is_in_metal(reference: Path, task: TaskId) -> bool:
    """Tell whether a task is written in Metal. A kernel in Metal is compiled when a test calls the kernel."""
    return any(path.endswith(".metal") for path, _ in _code(reference, task))


def compile_mistakes(
    reference: Path, task: TaskId, mistakes: Sequence[Mistake], seconds: float | None = None
) -> list[Mistake]:
    """Compile, in parallel, the C++ files that the mistakes change, and the reference's kernels to compare the mistakes
    with.

    Return the mistakes that were compiled within `seconds`, or need no compiler. All compiled files are kept.
    """
    sources = _compiled(reference, task, [path for path, _ in _code(reference, task)])
    if not sources:
        return list(mistakes)
    from tiny_llm_native import compiler  # imported here, since most mistakes are in Python

    def make(mistake: Mistake | None) -> None:
        if mistake is None:
            for path in sources:
                compiler.compile_kernels(reference / path)
            return
        for file in _native_files(reference, task, mistake).values():
            if file.suffix == ".cpp":
                compiler.compile_kernels(file, _flags(reference), file.parent)

    return [mistake for mistake in done_in_time(make, [None, *mistakes], seconds) if mistake]


def done_in_time(work: Callable[[Each], object], of: Sequence[Each], seconds: float | None) -> list[Each]:
    """Call `work` with each item, on all processors. Return the items whose calls ended within the given seconds.
    An item whose call raises an error is left out. Without a limit (`seconds` is None), the error is raised again.
    """
    pool = ThreadPoolExecutor(os.cpu_count())
    each_of = {pool.submit(work, each): each for each in of}
    done, late = wait(each_of, seconds)
    pool.shutdown(wait=not late, cancel_futures=True)
    if seconds is None:
        for future in done:
            future.result()
    return [each for future, each in each_of.items() if future in done and not future.exception()]


def _native_files(reference: Path, task: TaskId, mistake: Mistake) -> dict[str, Path]:
    """Write the C++ and Metal files that a mistake changes, and the files that include these files, to the mistake's
    folder.

    Return the written files, keyed by name. The folder is next to the reference's compiled libraries.
    """
    changed = {path: text for path, text in mutant_sources(reference, task, mistake).items() if is_native(path)}
    including = {path: _sources(reference)[path] for path in _compiled(reference, task, changed)}
    files = {}
    for path, text in (including | changed).items():
        file = reference / "kernels" / BUILT / "mistakes" / f"{task}_{mistake.id}" / Path(path).name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            write_whole(file, text.encode())
        files[file.name] = file
    return files


def _compiled(reference: Path, task: TaskId, paths: Collection[str]) -> list[str]:
    """Return the C++ files among these paths, and those C++ files of the task's day that include a header among these
    paths."""
    from tiny_llm_native.includes import with_included  # imported here, since most mistakes are in Python

    sources = [path for path in paths if path.endswith(".cpp")]
    if headers := {reference / path for path in paths if path.endswith(".h")}:
        files = [f"{module}.cpp" for module in day_of(task).modules if f"{module}.cpp" in _sources(reference)]
        sources += [path for path in files if headers & {*with_included(reference / path)}]
    return list(dict.fromkeys(sources))


def mutant_package(reference: Path, task: TaskId, mistake: Mistake) -> str:
    """Make the package with this mistake importable, and return its name."""
    name = f"mutant_{task}_{mistake.id}".replace(".", "_").replace("-", "_")
    if not any(isinstance(finder, _Finder) and finder.package == name for finder in sys.meta_path):
        changed = mutant_sources(reference, task, mistake)
        native = _native_files(reference, task, mistake)
        sys.meta_path.insert(0, _Finder(name, reference, changed, native))
    return name


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """The importer of one mutant: changed modules come from memory, all others from the reference.

    native: the changed C++ and Metal files, keyed by name. Modules that run kernels use these files instead of the
    reference's.
    """

    def __init__(self, package: str, reference: Path, changed: dict[str, str], native: dict[str, Path]):
        self.package = package
        self._reference = reference
        self._changed = changed
        self._native = native

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != self.package:
            return None
        place = str(self._reference / self._path(fullname))
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=place, is_package=self.is_package(fullname))
        spec.has_location = True  # sets the module's `__file__`, by which the module finds its kernels
        return spec

    def is_package(self, fullname: str) -> bool:
        return fullname == self.package or (self._reference / fullname.partition(".")[2].replace(".", "/")).is_dir()

    def get_source(self, fullname: str) -> str:
        path = self._path(fullname)
        if path in self._changed:
            return self._changed[path]
        try:
            return (self._reference / path).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise ImportError(f"no module {fullname}") from error

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        for name, load in {"kernel": self._kernel, "metal": self._metal}.items():
            if self._native and hasattr(module, name):
                setattr(module, name, load)

    def _path(self, fullname: str) -> str:
        module = fullname.partition(".")[2].replace(".", "/")
        return f"{module}/__init__.py".lstrip("/") if self.is_package(fullname) else f"{module}.py"

    def _kernel(self, source: Path, name: str, *tasks: str) -> Any:
        from tiny_llm_native import extension

        if changed := self._native.get(source.name):
            return extension.load(changed, name, _flags(self._reference), changed.parent)
        return extension.kernel(source, name, *tasks)

    def _metal(self, source: Path, name: str, inputs: Any, outputs: Any, *tasks: str, **options: bool) -> Any:
        from tiny_llm_native import metal

        if changed := self._native.get(source.name):
            return metal.MetalKernel(changed, name, inputs, outputs, **options)
        return metal.metal(source, name, inputs, outputs, *tasks, **options)


def _flags(reference: Path) -> tuple[str, ...]:
    """Return the compiler's flags for a changed file, which includes headers in another folder."""
    return QUICK, f"-I{reference / 'kernels'}"
