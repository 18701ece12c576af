"""Shows the mistake that the last test run named, then a task's hints, one level at a time."""

from __future__ import annotations

from ..catalogue import entry_of
from ..tasks.syllabus import Task, TaskId
from ..ui import Messages, show, wrapped
from .progress import SOLVED
from .workspace import Workspace, changing

__all__ = ["show_hint"]


def show_hint(task: Task, more: bool, words: Messages, next_step: str) -> None:
    """Show the mistake that the last test run named, then the hint of the level that the learner has reached.

    more: whether to go one level further. next_step: the sentence that says how to see the next level.
    """
    entry = entry_of(task.id)
    with changing("hint") as workspace:
        given = workspace.noted("hints", task.id)
        given = given if isinstance(given, int) else 0
        level = min(len(entry.hints), given + 1 if more else max(given, 1))
        workspace.note("hints", {task.id: level})
    _show_diagnosis(workspace, task.id, words)
    show(words("hint", task=task.id, title=words.of(task.title), level=level, count=len(entry.hints)), bold=True)
    show(wrapped(words.of(entry.hints[level - 1])))
    show("\n" + (words("hint_last", task=task.id) if level == len(entry.hints) else next_step), dim=True)


def _show_diagnosis(workspace: Workspace, task: TaskId, words: Messages) -> None:
    """Show the mistake that the last test run named for this task, unless the task has been solved since then."""
    mistake = entry_of(task).mistake(workspace.noted("diagnosed", task))
    if mistake and workspace.state(task) != SOLVED:
        show(words("hint_diagnosed"), bold=True)
        show(wrapped(words.of(mistake.diagnosis)) + "\n")
