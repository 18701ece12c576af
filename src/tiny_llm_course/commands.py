"""The commands of `tiny-llm`. `./course NAME` and `pdm run NAME` do the same as `tiny-llm NAME`.

A command's module is imported only when the command is called or listed, so that quick commands start quickly.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from .base.extras import install_command, missing
from .base.places import IS_CLONE, ROOT
from .base.reporting import reporting
from .learner.workspace import Workspace
from .ui import CommandError, as_called
from .ui.command_help import Command, Group
from .ui.command_table import ALL, ANYWHERE, FOR_INSTRUCTORS, FOR_LEARNERS, FOR_MAINTAINERS, NEED_SOLUTIONS, SHORT

__all__ = ["app", "names"]

PASSES_ON = {"ignore_unknown_options": True, "allow_extra_args": True}  # the arguments are meant for another program


def names() -> list[str]:
    """Return the commands of this copy of the course."""
    withheld = set() if Workspace().has_solutions else NEED_SOLUTIONS
    absent = {name for name, (script, _) in FOR_MAINTAINERS.items() if not (ROOT / script).is_file()}
    return [name for name in ALL if name not in withheld | absent and (IS_CLONE or name in ANYWHERE)]


class Commands(Group):
    """The group of all commands, which are listed in the tables of command_table.py."""

    def list_commands(self, ctx: Any) -> list[str]:
        return names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in SHORT:  # only for the list of commands: resolve_command replaces the name with these words
            return _command(cmd_name, _same_as(SHORT[cmd_name]), "Short forms")
        if cmd_name in FOR_MAINTAINERS:
            script = _script(*FOR_MAINTAINERS[cmd_name])
            return _command(cmd_name, script, "For maintainers", add_help_option=False)
        place = FOR_LEARNERS.get(cmd_name) or FOR_INSTRUCTORS[cmd_name]
        module, _, function = place.partition(":")
        target = getattr(import_module(f".{module}", __package__), function)
        return _command(cmd_name, target, "For instructors" if cmd_name in FOR_INSTRUCTORS else None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, *rest = args
        if name not in names():
            _run_program(name, rest)
            with reporting():
                raise _unknown(name)
        words = [name, "--"] if name in FOR_MAINTAINERS else SHORT.get(name, [name])  # the script needs its own "--"
        _, command, arguments = super().resolve_command(ctx, [*words, *rest])
        return name, command, arguments


app = typer.Typer(
    name="tiny-llm",
    cls=Commands,
    help="Write an LLM inference engine yourself, day by day.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _all() -> None:
    pass  # without this callback, Typer expects a registered command


def _command(name: str, target: Any, panel: str | None, add_help_option: bool = True) -> Any:
    """Make a Typer command from a function, or from a group of commands."""
    if not isinstance(target, typer.Typer):
        function, target = target, typer.Typer(add_completion=False)
        settings = PASSES_ON if name == "test" or not add_help_option else None
        text = as_called(inspect.getdoc(function) or "")
        target.command(name, cls=Command, context_settings=settings, add_help_option=add_help_option, help=text)(
            function
        )
    command: Any = typer.main.get_command(target)
    command.name, command.rich_help_panel = name, panel
    return command


def _same_as(words: list[str]) -> Callable[[], None]:
    def command() -> None:
        raise AssertionError("resolve_command puts other words in place of this command")

    command.__doc__ = f"The same as {' '.join(words)}."
    return command


def _script(name: str, needed: str | None) -> Callable[[typer.Context], None]:
    """Make a command that replaces this process with a script. needed: the packages that the script needs, as a key of
    `extras.WHAT`, or None if the script needs no packages."""

    def command(context: typer.Context) -> None:
        if needed and (absent := missing(needed)):
            with reporting():
                raise CommandError("install_needed", names=", ".join(absent), command=install_command(needed))
        os.execv(sys.executable, [sys.executable, str(ROOT / name), *context.args])

    command.__doc__ = ast.get_docstring(ast.parse((ROOT / name).read_text(encoding="utf-8")))
    return command


def _run_program(name: str, arguments: list[str]) -> None:
    """Replace this process with a program of the virtual environment, such as pytest. Return only if the environment
    has no such program."""
    program = Path(sys.prefix) / "bin" / name
    in_bin = Path(name).name == name and program.is_file() and os.access(program, os.X_OK)
    if in_bin and sys.prefix != sys.base_prefix:
        os.execv(program, [str(program), *arguments])


def _unknown(name: str) -> CommandError:
    if name in ALL and not IS_CLONE:
        return CommandError("command_of_clone", name=name)
    if meant := get_close_matches(name, names(), 1):
        return CommandError("command_misspelt", name=name, meant=meant[0])
    return CommandError("command_unknown", name=name)
