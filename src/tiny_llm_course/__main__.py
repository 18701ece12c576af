"""The `tiny-llm` command."""

from __future__ import annotations

import warnings
from typing import Any

import typer

from . import build_ext, doctor, export, lessons, roofline, running, solutions, text, trace, update, viz, watch
from .batch import batch
from .bench.command import bench
from .grading import commands
from .problems import say
from .serve import serve

__all__ = ["app", "main"]

app = typer.Typer(
    name="tiny-llm",
    help="Write an LLM inference engine yourself, day by day.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("next")(lessons.next_task)
app.command("progress")(lessons.progress)
app.command("list", hidden=True)(lessons.progress)
app.command()(watch.watch)
app.command()(lessons.hint)
app.command()(solutions.solution)
app.command()(solutions.reset)
app.command()(solutions.undo)
app.command()(update.update)
app.command()(doctor.doctor)
app.command("build-ext")(build_ext.build_ext)
app.command()(trace.trace)
app.command()(roofline.roofline)
app.command()(bench)
app.add_typer(viz.app, name="viz")
app.command()(commands.grade)
app.command()(commands.report)
app.command()(export.export)
app.command()(text.generate)
app.command()(text.chat)
app.command()(batch)
app.command()(serve)

to_pytest = {"ignore_unknown_options": True, "allow_extra_args": True}
app.command("test", context_settings=to_pytest)(running.run)


def main() -> None:
    warnings.showwarning = _show_warning
    app()


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """What the course's packages warn of, in a line; others' warnings are for others."""
    if category is UserWarning:
        say(f"note: {message}")


if __name__ == "__main__":
    main()
