"""The command `bench`: measures kernels and a model, shows tables, and writes the figures into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..base.packages import PACKAGES, package_of
from ..base.reporting import reporting
from ..model.options import Fast
from ..native.arithmetic import allow_int8
from ..native.threads import check_threads, set_threads
from ..ui import CommandError, Lang, one_of

__all__ = ["bench"]

Impl = Annotated[
    str, typer.Option(metavar="|".join(PACKAGES), help="The kernels to measure: yours, or the reference's.")
]


def bench(
    impl: Impl = "mine",
    kernels: Annotated[bool, typer.Option("--kernels/--no-kernels", help="Measure each kernel by itself.")] = True,
    model: Annotated[bool, typer.Option("--model/--no-model", help="Measure a whole model, day by day.")] = True,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Measure only this kernel, or `model`. May be given several times."),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Use small sizes and few runs, to see within seconds that everything runs.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of threads. Default: TINY_LLM_THREADS, or one per processor."),
    ] = None,
    fast: Fast = False,
    device: Annotated[
        str,
        typer.Option(
            metavar="cpu|gpu", help="cpu: kernels in C++. gpu: kernels in Metal, in a table to show to others."
        ),
    ] = "cpu",
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the figures so far to this file, as JSON, after each measurement."),
    ] = None,
    lang: Lang = None,
) -> None:
    """Compare your kernels with MLX's operations and the course's fastest kernels. This takes minutes."""
    with reporting(lang) as words:
        package = package_of(impl)
        if device not in ("cpu", "gpu"):
            raise CommandError("wrong_value", option="--device", expected=one_of(("cpu", "gpu")), got=device)
        if threads is not None:
            check_threads(threads)
        from .run import NAMES, BenchRun  # imported here, so that other commands do not wait for MLX

        if unknown := [name for name in only or () if name not in NAMES]:
            raise CommandError("wrong_value", option="--only", expected=one_of(NAMES), got=unknown[0])
        wanted = [name for name in NAMES if (model if name == "model" else kernels) and name in (only or NAMES)]
        options = f"--impl {impl}" + " --smoke" * smoke + " --device gpu" * (device == "gpu")
        if threads is not None:
            set_threads(threads)
            options += f" --threads {threads}"
        if fast:
            allow_int8()
            options += " --fast"
        run = BenchRun(package, wanted, options, save, words)
        (run.on_gpu if device == "gpu" else run.on_processor)(smoke)
