"""`tiny-llm build-ext`: builds the MLX extension, compiles the written C++ kernels, and starts to compile the known
mistakes of the first day with an open C++ kernel."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from ..base.packages import PACKAGES, package_of
from ..base.places import SRC
from ..base.reporting import reporting
from ..diagnosis.ahead import compile_ahead
from ..learner.workspace import Workspace
from ..native import mlx_extension
from ..native.compiling import compile_files
from ..native.kernel_files import kernels_of
from ..tasks.syllabus import day_of
from ..ui import Lang, show

__all__ = ["build_ext"]


def build_ext(
    impl: Annotated[
        str,
        typer.Option(
            metavar="|".join(PACKAGES), help="The kernels to build: the reference's, or yours in src/tiny_llm."
        ),
    ] = "mine",
    lang: Lang = None,
) -> None:
    """Build the MLX extension (once), and compile the C++ kernels that are no longer stubs."""
    with reporting(lang) as words:
        start, native = monotonic(), Workspace().native
        if is_current := mlx_extension.is_current(native):
            show(words("ext_current"))
        else:
            mlx_extension.build(native, words, show)
            show(words("ext_built", seconds=f"{monotonic() - start:.0f}", **_versions(native)))
        kernels = kernels_of(SRC / package_of(impl))
        compiled = compile_files(kernels.written, words)
        if done := [file.stem for file in kernels.written if str(file) not in compiled.problems]:
            show(words("ext_compiled", names=", ".join(done)))
        if compiled.names:
            times = {"seconds": f"{compiled.seconds:.0f}", "total": f"{monotonic() - start:.0f}"}
            show(words("ext_time" if is_current else "ext_total", **times))
        for file, tasks in kernels.open.items():
            show(words("ext_open", name=file.stem, tasks=", ".join(map(str, tasks))))
        if kernels.open and impl == "mine":
            compile_ahead(day_of(min(task for tasks in kernels.open.values() for task in tasks)))
        problems = [*kernels.faulty.values(), *compiled.problems.values()]
        for problem in problems:
            show(problem, fg="red")
        if problems:
            raise typer.Exit(1)


def _versions(native: Path) -> dict[str, str]:
    stamp = json.loads((mlx_extension.built(native) / mlx_extension.STAMP).read_text(encoding="utf-8"))
    return {"mlx": stamp["mlx"], "nanobind": stamp["nanobind"], "python": sys.version.split()[0]}
