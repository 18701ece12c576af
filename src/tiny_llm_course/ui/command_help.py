"""Shows `--help` and usage errors in readable colours, and in lines that are not wider than the terminal."""

from __future__ import annotations

import sys
from typing import Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from .terminal import left, rich_colours, rich_style, terminal_width
from .wrapping import columns, hanging

__all__ = ["Command", "Group", "set_colours"]

LEAST = 100  # columns that Typer's tables need; with fewer, options are cut off and explanations become narrow
STYLES = {
    "OPTION": "bold cyan",
    "SWITCH": "bold green",
    "NEGATIVE_OPTION": "bold cyan",
    "NEGATIVE_SWITCH": "bold green",
    "TYPES": "bold yellow",
    "TYPES_SEPARATOR": "dim",
    "USAGE": "yellow",
    "HELPTEXT": "",
    "OPTION_DEFAULT": "dim",
    "OPTION_ENVVAR": "yellow",
    "REQUIRED_SHORT": "red",
    "REQUIRED_LONG": "red",
    "OPTIONS_PANEL_BORDER": "dim",
    "COMMANDS_PANEL_BORDER": "dim",
    "COMMANDS_TABLE_FIRST_COLUMN": "bold cyan",
    "ERRORS_PANEL_BORDER": "red",
    "ERRORS_SUGGESTION": "dim",
}


def set_colours(out: TextIO) -> None:
    """Set the colours in which Typer writes to this stream from now on."""
    from typer import rich_utils  # imported here, so that commands start sooner

    rich_utils.COLOR_SYSTEM = rich_colours(out)
    for name, style in STYLES.items():
        setattr(rich_utils, f"STYLE_{name}", rich_style(style))
    rich_utils.RICH_HELP = rich_utils.RICH_HELP.replace("[blue]", "[bold]")


class _Coloured:
    """A command or group whose help and errors have readable colours."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        set_colours(sys.stdout)
        super().format_help(ctx, formatter)  # type: ignore[misc]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)  # type: ignore[misc]
        except typer.Exit:
            raise
        except Exception:  # Typer will explain what is wrong with the call
            set_colours(sys.stderr)
            raise


class Command(_Coloured, TyperCommand):
    """A single command."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        width = terminal_width(sys.stdout)
        if width < LEAST:
            formatter.write(_plain(self, ctx, width))
        else:
            super().format_help(ctx, formatter)


class Group(_Coloured, TyperGroup):
    """A group of commands, with help and errors in readable colours."""


def _plain(command: TyperCommand, ctx: Any, width: int) -> str:
    """Return a command's help as plain lines, instead of Rich's tables."""
    records = [record for parameter in command.get_params(ctx) if (record := parameter.get_help_record(ctx))]
    names = min(max(columns(name) for name, _ in records), width // 2)
    prose = [*command.get_usage(ctx).splitlines(), "", *(command.help or "").splitlines(), "", "Options:"]
    lines = [hanging(line, width, 0) for line in prose]
    for name, text in records:
        is_long = columns(name) > names
        lines += [hanging(f"  {name}", width, names + 4)] * is_long
        first, *rest = hanging(text, width - names - 4, 0).split("\n")
        lines.append(f"  {left('' if is_long else name, names)}  {first}")
        lines += [" " * (names + 4) + line for line in rest]
    return "\n".join(lines) + "\n"
