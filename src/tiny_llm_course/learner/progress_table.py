"""Shows which tasks are solved, skipped or open, in the whole course or in one week."""

from __future__ import annotations

import shutil

from ..tasks.plan import ALL, days_of
from ..tasks.syllabus import Day, Task, TaskId, Week, weeks
from ..ui import Messages, bar, show, signs, styled
from .progress import SKIPPED, SOLVED
from .workspace import Workspace

__all__ = ["progress_table", "week_list"]


def progress_table(workspace: Workspace, words: Messages) -> None:
    """Show all weeks, days and tasks, and the learner's progress."""
    for week in weeks():
        _show_week(week, workspace, words)
    if (path := workspace.progress.path) != ALL:
        ids = [task.id for day in days_of(path) for task in day.tasks]
        show(words("path_progress", done=sum(workspace.state(id) is not None for id in ids), count=len(ids)))


def week_list(workspace: Workspace, task: TaskId, rows: int, words: Messages) -> None:
    """Show the week of a task in full and each other week in one line, if all of this fits into this many rows of the
    terminal.

    If the week is too long, only the days nearest to the task's day show their tasks, and each other day takes one
    line.
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
    """Choose the days whose tasks are shown: the day with this number, and the nearest days of the week as long as rows
    are left."""
    rows -= sum(_rows(_day_line(day, words)) for day in week.days)
    days: list[Day] = []
    for day in sorted(week.days, key=lambda day: abs(day.number - number)):
        rows -= sum(_rows(f"    x {task.id}  {words.of(task.title)}") for task in day.tasks)
        if rows < 0 and days:
            break
        days.append(day)
    return days


def _rows(text: str) -> int:
    """Return the number of rows that a text takes on the terminal, which breaks long lines."""
    from rich.cells import cell_len  # imported here, so that commands without tables start sooner

    return max(1, -(-cell_len(text) // shutil.get_terminal_size().columns))


def _counts(week: Week, workspace: Workspace) -> tuple[int, int, int]:
    """Return how many tasks of a week are solved, skipped and open."""
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
