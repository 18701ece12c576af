"""`tiny-llm build-ext`: what kernels in C++ need to run: the bridge to MLX, and each kernel that is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from . import bridge
from .language import Lang, Messages, phrase
from .problems import CommandError, reporting
from .regions import regions
from .session import PACKAGES, package_of
from .syllabus import Day, TaskId
from .task_code import StubError
from .terminal import show
from .unsolved import open_task
from .workspace import SRC, Workspace

__all__ = ["COMPILE", "Kernels", "build_ext", "ensure_bridge", "has_kernels", "kernels_of"]

COMPILE = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
folder = Path(sys.argv[1])
spec = spec_from_file_location("compiler", folder / "compiler.py")
compiler = module_from_spec(spec)
spec.loader.exec_module(compiler)
def compiled(name):
    try:
        compiler.compile_kernels(folder / name)
    except compiler.CompileError as error:
        return str(error)
with ThreadPoolExecutor() as pool:
    print(json.dumps(dict(zip(sys.argv[2:], pool.map(compiled, sys.argv[2:])))))
"""  # of a folder `kernels` the files that are named; nothing else of its package is run


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
        if all(map(bridge.is_current, packages)):
            show(say("ext_current"))
        else:
            bridge.build(packages, say, show)
            show(say("ext_built", seconds=f"{monotonic() - start:.0f}", **_versions(package)))
        kernels = kernels_of(package)
        problems = kernels.faulty | _compile(package, kernels.written)
        if done := [file.stem for file in kernels.written if file not in problems]:
            show(say("ext_compiled", names=", ".join(done)))
        for file, tasks in kernels.open.items():
            show(say("ext_open", name=file.stem, tasks=", ".join(map(str, tasks))))
        for problem in problems.values():
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


def _compile(package: Path, files: list[Path]) -> dict[Path, str]:
    """In a process of its own, since it is the package that knows how. Returns what does not compile."""
    if not files:
        return {}
    command = [sys.executable, "-c", COMPILE, str(package / "kernels"), *(file.name for file in files)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        reason = run.stderr.strip().rpartition("\n")[2] or phrase("exit_code", code=run.returncode)
        raise CommandError("ext_kernels", folder=f"src/{package.name}/kernels", reason=reason, exit_code=1)
    found = json.loads(run.stdout)
    return {file: found[file.name] for file in files if found[file.name]}


def _versions(package: Path) -> dict[str, str]:
    stamp = json.loads((bridge.built(package) / bridge.STAMP).read_text(encoding="utf-8"))
    return {"mlx": stamp["mlx"], "nanobind": stamp["nanobind"], "python": sys.version.split()[0]}
