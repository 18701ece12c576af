"""The commands that tell the learner what to do: `tiny-llm next`, `progress` and `hint`. These commands start quickly,
because this module does not import MLX."""

from __future__ import annotations

from typing import Annotated

import typer

from ..base.arguments import TaskArgument
from ..base.reporting import reporting
from ..tasks.plan import ALL, PATHS, about, days_of, hours
from ..ui import CommandError, Lang, Messages, one_of, show
from .hints import show_hint
from .next_steps import chosen_task, show_next
from .progress_table import progress_table
from .workspace import Workspace, changing

__all__ = ["hint", "next_task", "progress"]


def next_task(
    path: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(PATHS),
            help="Follow this path from now on: the short path of 12 hours, or the whole course.",
        ),
    ] = None,
    lang: Lang = None,
) -> None:
    """Say what to do next: the task, its chapter, the file and line of its code, and the command that tests it."""
    with reporting(lang) as words:
        if path is not None:
            with changing("next") as workspace:
                _follow(path, workspace, words)
        show_next(Workspace(), words)


def _follow(path: str, workspace: Workspace, words: Messages) -> None:
    if path not in PATHS:
        raise CommandError("wrong_value", option="--path", expected=one_of(PATHS), got=path)
    if path != ALL and not workspace.has_solutions:
        raise CommandError("path_withheld", exit_code=1)
    workspace.progress.follow(path)
    days = days_of(path)
    show(words(f"path_{path}", count=len(days), hours=about(hours(days))) + "\n")


def progress(lang: Lang = None) -> None:
    """Show which tasks are solved, skipped or open."""
    with reporting(lang) as words:
        progress_table(Workspace(), words)


def hint(
    task: TaskArgument = None,
    more: Annotated[
        bool, typer.Option("--more", help="Show the next hint: a nudge, then where to look, then pseudo-code.")
    ] = False,
    lang: Lang = None,
) -> None:
    """Help with a task, a little at a time."""
    with reporting(lang) as words:
        workspace = Workspace()
        chosen = chosen_task(task, workspace)
        if chosen is None:
            show_next(workspace, words)
        else:
            show_hint(chosen, more, words, words("hint_more", task=chosen.id))
