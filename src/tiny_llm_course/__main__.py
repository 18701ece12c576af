"""The `tiny-llm` command."""

from __future__ import annotations

import typer

from . import doctor, export, lessons, running, solutions, text, trace, update, viz, watch
from .grading import commands

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
app.command()(trace.trace)
app.add_typer(viz.app, name="viz")
app.command()(commands.grade)
app.command()(commands.report)
app.command()(export.export)
app.command()(text.generate)
app.command()(text.chat)

to_pytest = {"ignore_unknown_options": True, "allow_extra_args": True}
app.command("test", context_settings=to_pytest)(running.run)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
