"""What to do after a task is solved: run what a finished day or week made possible, and go on to the next task."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from .language import Messages
from .lessons import show_end, show_left_out
from .syllabus import Day, weeks
from .terminal import show
from .toml import read_toml
from .workspace import Workspace

__all__ = ["command_of", "show_finished", "show_next_step"]


@cache
def _commands() -> dict[str, str]:
    return {str(day): str(command) for day, command in read_toml(Path(__file__).with_suffix(".toml")).items()}


def command_of(day: Day) -> str:
    """The command with which a day's chapter ends."""
    return _commands()[f"{day.week}.{day.number}"]


def show_finished(day: Day, workspace: Workspace, say: Messages) -> None:
    """What the learner can do now that all of a day is done, and after its week, if that is done too."""
    if any(workspace.state(task.id) is None for task in day.tasks):
        return
    show(say("day_finished", week=day.week, day=day.number, command=command_of(day)))
    (week,) = (week for week in weeks() if week.number == day.week)
    if all(workspace.state(task.id) for other in week.days for task in other.tasks):
        show(say(f"week_finished_{week.number}").strip("\n"))


def show_next_step(day: Day, workspace: Workspace, say: Messages) -> None:
    """After a run in which everything passed: what was finished, and the next task in a line."""
    show()
    show_finished(day, workspace, say)
    task = workspace.next_task()
    if task is None:
        show_end(workspace, say)
    else:
        show_left_out(workspace, task, say)
        show(say("next_short", task=task.id, title=say.of(task.title), command=task.id.test_command))
