"""Shows what to do after a task is solved: run what a finished day or week made possible, and go on to the next
task."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ..tasks.syllabus import Day, weeks
from ..tasks.toml import read_toml
from ..ui import Messages, show
from .progress_commands import show_end, show_left_out
from .workspace import Workspace

__all__ = ["command_of", "show_finished", "show_next_step"]


@cache
def _commands() -> dict[str, str]:
    return {str(day): str(command) for day, command in read_toml(Path(__file__).with_suffix(".toml")).items()}


def command_of(day: Day) -> str:
    """The command with which a day's chapter ends."""
    return _commands()[f"{day.week}.{day.number}"]


def show_finished(day: Day, workspace: Workspace, words: Messages) -> None:
    """Show what the learner can do now that a whole day is done, and a whole week if that is done too."""
    if any(workspace.state(task.id) is None for task in day.tasks):
        return
    show(words("day_finished", week=day.week, day=day.number, command=command_of(day)))
    (week,) = (week for week in weeks() if week.number == day.week)
    if all(workspace.state(task.id) for other in week.days for task in other.tasks):
        show(words(f"week_finished_{week.number}").strip("\n"))


def show_next_step(day: Day, workspace: Workspace, words: Messages) -> None:
    """After a run in which everything passed: what was finished, and the next task in a line."""
    show()
    show_finished(day, workspace, words)
    task = workspace.next_task()
    if task is None:
        show_end(workspace, words)
    else:
        show_left_out(workspace, task, words)
        show(words("next_short", task=task.id, title=words.of(task.title), command=task.id.test_command))
