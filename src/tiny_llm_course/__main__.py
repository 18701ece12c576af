"""The `tiny-llm` command."""

from __future__ import annotations

import typer

from . import running, text

__all__ = ["app", "main"]

app = typer.Typer(
    name="tiny-llm",
    help="Write an LLM inference engine yourself, day by day.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(text.generate)
app.command()(text.chat)

to_pytest = {"ignore_unknown_options": True, "allow_extra_args": True}
app.command("test", context_settings=to_pytest)(running.run)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
