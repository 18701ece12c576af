"""The commands that say what to do: `tiny-llm next`, `progress` and `hint`. Quick: nothing here imports MLX."""

from __future__ import annotations

import os
import shutil
from typing import Annotated

import typer

from ..catalogue import entry_of
from ..tasks.plan import ALL, PATHS, about, days_of, hours
from ..tasks.syllabus import Day, Task, TaskId, Week, day_of, tasks, weeks
from ..ui import CommandError, Lang, Messages, bar, one_of, show, signs, styled, wrapped
from .asked import asked_task
from .progress import SKIPPED, SOLVED
from .reporting import reporting
from .workspace import Workspace, changing

__all__ = [
    "TaskArgument",
    "chosen_task",
    "hint",
    "next_task",
    "progress",
    "progress_table",
    "show_end",
    "show_hint",
    "show_left_out",
    "show_next",
    "week_list",
]

TaskArgument = Annotated[
    str | None, typer.Argument(metavar="[TASK]", help="A task's id, such as w1d1.1. Default: the next open task.")
]


def next_task(
    path: Annotated[
        str | None,
        typer.Option(metavar="|".join(PATHS), help="Follow a path from now on: 12 hours, or the whole course."),
    ] = None,
    lang: Lang = None,
) -> None:
    """Say what to do next: task, chapter, file and line, test command."""
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
    """Show all tasks: solved, skipped, open."""
    with reporting(lang) as words:
        progress_table(Workspace(), words)


def progress_table(workspace: Workspace, words: Messages) -> None:
    """Show all weeks, days and tasks, and how far the learner got."""
    for week in weeks():
        _show_week(week, workspace, words)
    if (path := workspace.progress.path) != ALL:
        ids = [task.id for day in days_of(path) for task in day.tasks]
        show(words("path_progress", done=sum(workspace.state(id) is not None for id in ids), count=len(ids)))


def week_list(workspace: Workspace, task: TaskId, rows: int, words: Messages) -> None:
    """The week of a task in this many rows of the terminal, if that is possible; each other week is one line.

    Of a week that is too long, the days nearest to the task's own show their tasks, and each other day is one line.
    """
    lines = {week.number: _week_line(week, workspace, words) for week in weeks()}
    for week in weeks():
        is_current = week.number == task.week
        show(lines[week.number], bold=is_current)
        unfolded = _unfolded(week, task.day, rows - sum(map(_rows, lines.values())), words)
        for day in week.days if is_current else ():
            done = sum(workspace.state(task.id) is not None for task in day.tasks)
            folded = "" if day in unfolded else "  " + words("day_folded", done=done, count=len(day.tasks))
            show(_day_line(day, words) + folded)
            for one in day.tasks if day in unfolded else ():
                _show_task(one, workspace.state(one.id), words)


def _unfolded(week: Week, number: int, rows: int, words: Messages) -> list[Day]:
    """The days of a week that show their tasks: that of this number, and its neighbours as long as there are rows."""
    rows -= sum(_rows(_day_line(day, words)) for day in week.days)
    found: list[Day] = []
    for day in sorted(week.days, key=lambda day: abs(day.number - number)):
        rows -= sum(_rows(f"    x {task.id}  {words.of(task.title)}") for task in day.tasks)
        if rows < 0 and found:
            break
        found.append(day)
    return found


def _rows(text: str) -> int:
    """Return how many rows of the terminal a text takes, since the terminal breaks long lines."""
    from rich.cells import cell_len  # here, so that commands that only talk start sooner

    return max(1, -(-cell_len(text) // shutil.get_terminal_size().columns))


def hint(
    task: TaskArgument = None,
    more: Annotated[
        bool, typer.Option("--more", help="Go one level further: nudge, where to look, pseudo-code.")
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


def show_hint(task: Task, more: bool, words: Messages, next_step: str) -> None:
    """The hint of the level reached so far, or the next one; first what the last test run named.

    next_step: how to see the next level.
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


def chosen_task(text: str | None, workspace: Workspace) -> Task | None:
    """The task with this id; of None the next open one, or None if all are done."""
    return workspace.next_task() if text is None else asked_task(text)


def show_next(workspace: Workspace, words: Messages, task: Task | None = None) -> None:
    """Show what to do next, in a few lines: this task, or the first open one."""
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
    """Show the command that fills in the days before a task that the learner's path leaves out, if one of them is
    open."""
    path = workspace.progress.path
    if left_out := workspace.left_out(path, task):
        show(words("next_left_out", path=path, count=len(left_out)))


def show_end(workspace: Workspace, words: Messages) -> None:
    """Nothing is open: the path is done, or all of the course."""
    key = "all_done" if workspace.progress.path == ALL else "path_done"
    show(words(key, count=sum(workspace.state(task.id) is not None for task in tasks())))


def _show_diagnosis(workspace: Workspace, task: TaskId, words: Messages) -> None:
    """Show the mistake that the last test run named, unless the task was solved since."""
    mistake = entry_of(task).mistake(workspace.noted("diagnosed", task))
    if mistake and workspace.state(task) != SOLVED:
        show(words("hint_diagnosed"), bold=True)
        show(wrapped(words.of(mistake.diagnosis)) + "\n")


def _counts(week: Week, workspace: Workspace) -> tuple[int, int, int]:
    """Count the tasks that are solved, skipped and open."""
    states = [workspace.state(task.id) for day in week.days for task in day.tasks]
    solved, skipped = states.count(SOLVED), states.count(SKIPPED)
    return solved, skipped, len(states) - solved - skipped


def _week_line(week: Week, workspace: Workspace, words: Messages) -> str:
    solved, skipped, open_ = _counts(week, workspace)
    total = words("total", solved=solved, skipped=skipped, open=open_)
    return f"{words('week', number=week.number, title=words.of(week.title))}  {total}"


def _day_line(day: Day, words: Messages) -> str:
    return "  " + words("day", number=day.number, title=words.of(day.chapter))


def _show_week(week: Week, workspace: Workspace, words: Messages) -> None:
    solved, skipped, open_ = _counts(week, workspace)
    show(words("week", number=week.number, title=words.of(week.title)), bold=True)
    total = words("total", solved=solved, skipped=skipped, open=open_)
    show(f"{bar(solved, skipped, solved + skipped + open_)}  {total}\n")
    for day in week.days:
        show(_day_line(day, words))
        for task in day.tasks:
            _show_task(task, workspace.state(task.id), words)


def _show_task(task: Task, state: str | None, words: Messages) -> None:
    mark, colour = {SOLVED: (signs().solved, "green"), SKIPPED: (signs().skipped, "yellow")}.get(
        state or "", (signs().open, None)
    )
    skipped = f"  ({words(state)})" if state == SKIPPED else ""
    show(styled(f"    {mark} {task.id}  {words.of(task.title)}", fg=colour) + skipped)
