"""The command: measures, shows tables, writes a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine import check_threads, set_threads
from ..files import write_whole
from ..language import Lang, Messages
from ..problems import CommandError, one_of, reporting, say
from ..session import PACKAGES, package_of
from ..syllabus import select_days, select_task
from ..terminal import left, right, show, wrapped
from .machine import about

__all__ = ["bench", "rung_name", "speed"]


Row = dict[str, Any]
Impl = Annotated[str, typer.Option(metavar="|".join(PACKAGES), help="Whose kernels: yours, or the reference's.")]


def bench(
    impl: Impl = "mine",
    kernels: Annotated[bool, typer.Option("--kernels/--no-kernels", help="Measure each kernel by itself.")] = True,
    model: Annotated[bool, typer.Option("--model/--no-model", help="Measure a whole model, day by day.")] = True,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Small sizes and few runs: seconds, to see that everything runs.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="On how many threads. Default: TINY_LLM_THREADS, or all processors.")
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="cpu|gpu", help="Kernels in C++, or those in Metal, in a table to show to others.")
    ] = "cpu",
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what was measured, as JSON.")] = None,
    lang: Lang = None,
) -> None:
    """Measure your kernels of week 2, beside MLX's operations and the course's fastest. Takes some minutes."""
    with reporting(lang) as words:
        package = package_of(impl)
        if device not in ("cpu", "gpu"):
            raise CommandError("wrong_value", option="--device", expected=one_of(("cpu", "gpu")), got=device)
        command = f"tiny-llm bench --impl {impl}" + " --smoke" * smoke + " --device gpu" * (device == "gpu")
        if device == "gpu":
            _bench_gpu(package, smoke, kernels, model, save, command, words)
            return
        from .measuring import measure  # here, so that other commands do not wait for MLX

        if threads is not None:
            check_threads(threads)
            set_threads(package, threads)
        with _progress(words) as step:
            found = measure(package, smoke, kernels, model, step)
        _show(found, words)
        if save is not None:
            _save(save, found, command)


def _bench_gpu(
    package: str, smoke: bool, kernels: bool, model: bool, save: Path | None, command: str, words: Messages
) -> None:
    from .gpu import measure_gpu, table

    with _progress(words) as step:
        found = measure_gpu(package, smoke, kernels, model, step)
    show(table(found, about(command, "mlx", "mlx-lm")))
    if save is not None:
        _save(save, found, command)


@contextmanager
def _progress(words: Messages) -> Iterator[Any]:
    """Gives step(name, done, count), which says how far it is."""
    if not sys.stderr.isatty():
        yield lambda name, done, count: say(f"{name} ...")
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(words("bench_measuring"), total=None)
        yield lambda name, done, count: progress.update(task, description=name, completed=done, total=count)


def _show(found: dict[str, Any], words: Messages) -> None:
    limits = found["limits"]
    show(words("roofline_machine", threads=found["threads"]), bold=True)
    for name, unit in (("bandwidth", "GB/s"), ("float32", "GFLOP/s"), ("bfloat16", "GFLOP/s")):
        if limits[name]:
            show(f"  {left(words(f'roofline_{name}'), 44)} {right(f'{limits[name] / 1e9:,.0f} {unit}', 16)}")
    for case in dict.fromkeys((row["kernel"], row["sizes"]) for row in found["kernels"]):
        _show_kernel(case, [row for row in found["kernels"] if (row["kernel"], row["sizes"]) == case], words)
    if found["model"]:
        _show_model(found["model"], words)


def _show_kernel(case: tuple[str, str], rows: list[Row], words: Messages) -> None:
    show(f"\n{case[0]}, {case[1]}", bold=True)
    twin = rows[0]["seconds"]
    for row in rows:
        name = rung_name(row["rung"], words)
        if row["seconds"] is None:
            show(f"  {left(name, 44)} {right(words('bench_open'), 16)}", dim=True)
            continue
        seconds, limit = row["seconds"], row["limit"]
        line = f"  {left(name, 44)} {right(f'{seconds * 1e6:,.1f} µs', 16)} {twin / seconds:10.1f} x"
        show(line + (f"   {words('bench_limit', percent=round(100 * limit))}" if limit else ""))


def _show_model(rows: list[Row], words: Messages) -> None:
    show("\n" + words("bench_model", prompt=rows[0]["prompt"]), bold=True)
    show(f"  {left('', 44)} {right(words('bench_prefill'), 16)} {right(words('bench_decode'), 16)}")
    for row in rows:
        name = rung_name(row["stage"], words)
        speeds = (
            [words("bench_open")] * 2 if row["decode"] is None else [speed(row[of]) for of in ("prefill", "decode")]
        )
        show(f"  {left(name, 44)} {right(speeds[0], 16)} {right(speeds[1], 16)}", dim=row["decode"] is None)
    days = [row for row in rows if row["stage"] != "tuned"]
    written = next((i for i, row in enumerate(days) if row["decode"] is None), len(days))
    stands = words("bench_rung", rung=written, count=len(days))
    if written < len(days):
        stands += " " + words("bench_next", day=rung_name(days[written]["stage"], words))
    show("\n" + wrapped(stands))


def rung_name(rung: str, words: Messages) -> str:
    """What a rung is called: a task's or day's title."""
    if rung in ("twin", "mlx", "tuned", "week 1"):
        return words(f"bench_{rung.replace(' ', '_')}")
    if "." in rung:
        return f"{rung} {words.of(select_task(rung).title)}"
    day = rung.partition("d")[2]
    return words("bench_day", day=day, title=words.of(select_days("2", day)[0].chapter))


def speed(tokens: float) -> str:
    """Tokens per second, to about three digits."""
    return f"{tokens:,.{0 if tokens >= 100 else 1 if tokens >= 10 else 2}f} tok/s"


def _save(file: Path, found: dict[str, Any], command: str) -> None:
    write_whole(file, (json.dumps(about(command, "mlx", "numpy") | found, indent=1) + "\n").encode())
    say(Messages()("viz_wrote", file=file))
