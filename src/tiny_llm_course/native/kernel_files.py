"""Finds a package's written and open C++ kernels, and builds the MLX extension that they need."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tiny_llm_native.includes import with_included

from ..base.places import SRC
from ..learner.workspace import Workspace
from ..tasks.regions import code_files, regions
from ..tasks.syllabus import Day, TaskId
from ..tasks.task_code import StubError
from ..tasks.unsolved import open_task
from ..ui import CommandError, Messages, show
from . import mlx_extension

__all__ = ["Kernels", "ensure_extension", "has_kernels", "kernels_of"]


@dataclass(frozen=True)
class Kernels:
    """A package's kernel files."""

    written: list[Path]  # files with at least one written task, and files without tasks
    open: dict[Path, list[TaskId]]  # files with stubs, and the tasks of these stubs
    faulty: dict[Path, str]  # files whose markers are damaged, and the damage


def ensure_extension(package_name: str, days: list[Day], words: Messages) -> None:
    """Build the MLX extension for the tests of these days if one of the days' kernels is written and the extension is
    outdated or missing."""
    native = Workspace().native
    if not has_kernels(days) or mlx_extension.is_current(native):
        return
    names = {file.name for day in days for file in Workspace().files(day)}
    if any(file.name in names for file in kernels_of(SRC / package_name).written):
        try:
            mlx_extension.build(native, words, show)
        except CommandError as problem:  # the tests will say more
            show(str(problem), fg="yellow")


def has_kernels(days: list[Day]) -> bool:
    """Tell whether one of these days has a task in C++."""
    return any(file.suffix == ".cpp" for day in days for file in Workspace().files(day))


def kernels_of(package: Path) -> Kernels:
    """Find the kernels of a package and the kernels that both packages share: the kernels to compile, and those still
    to be written."""
    kernels = Kernels([], {}, {})
    shared = (file for file in code_files(Workspace().native) if file.suffix == ".cpp")
    files = {file.name: file for file in (*(package / "kernels").glob("*.cpp"), *shared)}
    for _, file in sorted(files.items()):  # if two files have the same name, the shared file is the one that runs
        if file.name == mlx_extension.SOURCE:
            continue
        try:
            code_by_task = _regions_of(file)
        except StubError as error:
            kernels.faulty[file] = str(error)
            continue
        open_ = [task for task, code in code_by_task.items() if open_task(code)]
        if open_:
            kernels.open[file] = open_
        if len(open_) < len(code_by_task) or not code_by_task:
            kernels.written.append(file)
    return kernels


def _regions_of(file: Path) -> dict[TaskId, str]:
    """Return the code of the tasks in this file, and in the headers that the file includes from its own folder, keyed
    by task."""
    code_by_task: dict[TaskId, str] = {}
    for part in with_included(file):
        if part.parent == file.parent:
            code_by_task |= regions(part.read_text(encoding="utf-8", errors="replace"), os.path.relpath(part))
    return code_by_task
