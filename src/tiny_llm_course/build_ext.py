"""`tiny-llm build-ext`: what kernels in C++ need to run: the bridge to MLX, and each kernel that is written."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from . import bridge
from .ahead import compile_ahead
from .compiling import compile_files
from .language import Lang, Messages
from .problems import CommandError, reporting
from .regions import regions
from .session import PACKAGES, package_of
from .syllabus import Day, TaskId, day_of
from .task_code import StubError
from .terminal import show
from .unsolved import open_task
from .workspace import SRC, Workspace

__all__ = ["Kernels", "build_ext", "ensure_bridge", "has_kernels", "kernels_of"]


@dataclass(frozen=True)
class Kernels:
    """The files of kernels of a package."""

    written: list[Path]  # all, or some of their tasks
    open: dict[Path, list[TaskId]]  # tasks of which the stub still stands there
    faulty: dict[Path, str]  # files whose markers are damaged, and how


def build_ext(
    impl: Annotated[
        str, typer.Option(metavar="|".join(PACKAGES), help="Whose kernels: the reference's, or yours in src/tiny_llm.")
    ] = "mine",
    lang: Lang = None,
) -> None:
    """Build what kernels in C++ need (once), and compile those that are written."""
    with reporting(lang) as say:
        package = SRC / package_of(impl)
        start, packages = monotonic(), _with_reference(package)
        if is_current := all(map(bridge.is_current, packages)):
            show(say("ext_current"))
        else:
            bridge.build(packages, say, show)
            show(say("ext_built", seconds=f"{monotonic() - start:.0f}", **_versions(package)))
        kernels = kernels_of(package)
        compiled = compile_files(package / "kernels", [file.name for file in kernels.written], say)
        if done := [file.stem for file in kernels.written if file.name not in compiled.problems]:
            show(say("ext_compiled", names=", ".join(done)))
        if compiled.names:
            times = {"seconds": f"{compiled.seconds:.0f}", "total": f"{monotonic() - start:.0f}"}
            show(say("ext_time" if is_current else "ext_total", **times))
        for file, tasks in kernels.open.items():
            show(say("ext_open", name=file.stem, tasks=", ".join(map(str, tasks))))
        if kernels.open and impl == "mine":
            compile_ahead(day_of(min(task for tasks in kernels.open.values() for task in tasks)))
        problems = [*kernels.faulty.values(), *compiled.problems.values()]
        for problem in problems:
            show(problem, fg="red")
        if problems:
            raise typer.Exit(1)


def ensure_bridge(package_name: str, days: list[Day], say: Messages) -> None:
    """Before tests of kernels that are written: build the bridge, if it is not there and can be built."""
    package = SRC / package_name
    packages = _with_reference(package)
    if not has_kernels(days) or all(map(bridge.is_current, packages)):
        return
    names = {file.name for day in days for file in Workspace().files(day)}
    if any(file.name in names for file in kernels_of(package).written):
        try:
            bridge.build(packages, say, show)
        except CommandError as problem:  # the tests say the rest
            show(str(problem), fg="yellow")


def has_kernels(days: list[Day]) -> bool:
    """Whether one of these days has a task in C++."""
    return any(file.suffix == ".cpp" for day in days for file in Workspace().files(day))


def kernels_of(package: Path) -> Kernels:
    """What there is to compile, and what is still to be written."""
    kernels = Kernels([], {}, {})
    for file in sorted((package / "kernels").glob("*.cpp")):
        if file.name in bridge.SOURCES:
            continue
        name = os.path.relpath(file)
        try:
            found = regions(file.read_text(encoding="utf-8", errors="replace"), name)
        except StubError as error:
            kernels.faulty[file] = str(error)
            continue
        open_ = [task for task, code in found.items() if open_task(code)]
        if open_:
            kernels.open[file] = open_
        if len(open_) < len(found) or not found:
            kernels.written.append(file)
    return kernels


def _with_reference(package: Path) -> list[Path]:
    """The reference's bridge is the same, and mistakes of learners are named by running it with a mistake in it."""
    reference = Workspace().reference
    return [package, reference] if Workspace().has_solutions and package != reference else [package]


def _versions(package: Path) -> dict[str, str]:
    stamp = json.loads((bridge.built(package) / bridge.STAMP).read_text(encoding="utf-8"))
    return {"mlx": stamp["mlx"], "nanobind": stamp["nanobind"], "python": sys.version.split()[0]}
