"""Arguments that several commands share: tasks, days, and the output folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ..tasks.syllabus import Day, SyllabusError, Task, select_days, select_task, tasks, weeks
from ..ui import CommandError, Phrase, phrase

__all__ = ["OUT", "Out", "TaskArgument", "asked_day", "asked_days", "asked_task"]

OUT = Path("out")  # in the current folder; git ignores this folder
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for the files, created if it does not exist.")]
TaskArgument = Annotated[
    str | None, typer.Argument(metavar="[TASK]", help="A task's id, such as w1d1.1. Default: the next open task.")
]


def asked_task(name: str) -> Task:
    """Return the task with this id. Raises a CommandError if there is no such task."""
    try:
        return select_task(name)
    except SyllabusError:
        numbers = ".".join(re.findall(r"\d+", name))
        meant = next((task.id for task in tasks() if numbers and task.id.numbers.startswith(numbers)), None)
        if meant:
            raise CommandError("task_misspelt", name=name, meant=meant) from None
        raise CommandError("task_unknown", name=name, example=tasks()[0].id) from None


def asked_day(name: str) -> Day | None:
    """Return the day with this name, such as 1.2. Return None if the name does not look like 1.2. Raises a CommandError
    if the course has no such day."""
    match = re.fullmatch(r"(\d+)\.(\d+)", name)
    return asked_days(match[1], match[2])[0] if match else None


def asked_days(week: str | None, day: str | None) -> list[Day]:
    """Return the days that --week and --day name: all days, a week's days, or one day. Raises a CommandError if there
    is no such week or day."""
    try:
        return select_days(week, day)
    except SyllabusError:
        if week is None:
            raise CommandError("day_without_week", day=day, existing=_existing()) from None
        if week not in {str(known.number) for known in weeks()}:
            raise CommandError("week_unknown", week=week, existing=_existing()) from None
        raise CommandError("day_unknown", week=week, day=day, existing=_existing()) from None


def _existing() -> list[Phrase]:
    """List every week and its days."""
    return [
        phrase("days_of_week", week=week.number, first=week.days[0].number, last=week.days[-1].number)
        for week in weeks()
    ]
