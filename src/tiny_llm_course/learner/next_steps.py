"""Shows the next task, and what the learner can do after finishing a day or a week."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from ..base.arguments import asked_task
from ..tasks.plan import ALL
from ..tasks.syllabus import Day, Task, day_of, tasks, weeks
from ..tasks.toml import read_toml
from ..ui import Messages, show
from .workspace import Workspace

__all__ = ["chosen_task", "command_of", "show_end", "show_finished", "show_left_out", "show_next", "show_next_step"]


@cache
def _commands() -> dict[str, str]:
    return {str(day): str(command) for day, command in read_toml(Path(__file__).with_suffix(".toml")).items()}


def command_of(day: Day) -> str:
    """Return the command at the end of a day's chapter."""
    return _commands()[f"{day.week}.{day.number}"]


def show_finished(day: Day, workspace: Workspace, words: Messages) -> None:
    """If all tasks of this day are done, show what the learner can do next. If the whole week is done, show its closing
    text, too. If a task of the day is open, show nothing."""
    if any(workspace.state(task.id) is None for task in day.tasks):
        return
    show(words("day_finished", week=day.week, day=day.number, command=command_of(day)))
    (week,) = (week for week in weeks() if week.number == day.week)
    if all(workspace.state(task.id) for other in week.days for task in other.tasks):
        show(words(f"week_finished_{week.number}").strip("\n"))


def show_next_step(day: Day, workspace: Workspace, words: Messages) -> None:
    """After a run in which every test passed, say which day or week the learner has finished, if any, and show the next
    task in one line."""
    show()
    show_finished(day, workspace, words)
    task = workspace.next_task()
    if task is None:
        show_end(workspace, words)
    else:
        show_left_out(workspace, task, words)
        show(words("next_short", task=task.id, title=words.of(task.title), command=task.id.test_command))


def chosen_task(text: str | None, workspace: Workspace) -> Task | None:
    """Return the task with this id. Without an id, return the next open task. Return None if all tasks are done."""
    return workspace.next_task() if text is None else asked_task(text)


def show_next(workspace: Workspace, words: Messages, task: Task | None = None) -> None:
    """Show what to do next, in a few lines: this task if it is open, otherwise the next open task."""
    if task is None or workspace.state(task.id) is not None:
        task = workspace.next_task()
    if task is None:
        show_end(workspace, words)
        return
    day = day_of(task.id)
    place = workspace.place(day, task)
    text = words(
        "next",
        title=words.of(task.title),
        task=task.id,
        week=day.week,
        day=day.number,
        chapter=words.of(day.chapter),
        file=os.path.relpath(place.file),
        line=place.line,
        command=task.id.test_command,
    )
    show(text.strip("\n"))
    if workspace.is_untouched and task.id.week and workspace.progress.path == ALL:
        show(words("next_warm_up", task=tasks()[0].id))
    show_left_out(workspace, task, words)
    if problem := workspace.broken(day):
        show(problem, fg="red")


def show_left_out(workspace: Workspace, task: Task, words: Messages) -> None:
    """If the learner's path leaves out open tasks before this task, show the command that fills them in."""
    path = workspace.progress.path
    if left_out := workspace.left_out(path, task):
        show(words("next_left_out", path=path, count=len(left_out)))


def show_end(workspace: Workspace, words: Messages) -> None:
    """Say that no task is open, because the learner's path or the whole course is done."""
    key = "all_done" if workspace.progress.path == ALL else "path_done"
    show(words(key, count=sum(workspace.state(task.id) is not None for task in tasks())))
