"""The syllabus: weeks, days and tasks, read from syllabus.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .toml import read_toml

__all__ = [
    "Day",
    "SyllabusError",
    "Task",
    "TaskId",
    "Text",
    "Week",
    "day_of",
    "parse_task_ids",
    "select_days",
    "select_task",
    "tasks",
    "weeks",
]

Text = dict[str, str]  # language code -> text


class SyllabusError(ValueError):
    """The error raised when the syllabus has no such week, day or task. The one-line message says which weeks, days or
    tasks exist."""


@dataclass(frozen=True, order=True)
class TaskId:
    """The id of a task, such as `w1d2.3`: week 1, day 2, task 3. Ids sort in the order of the course."""

    week: int
    day: int
    task: int

    def __str__(self) -> str:
        return f"w{self.week}d{self.day}.{self.task}"

    @property
    def numbers(self) -> str:
        """Return the numbers of the week, day and task as `1.2.3`."""
        return f"{self.week}.{self.day}.{self.task}"

    @property
    def words(self) -> str:
        """Return the id in words: `Week 1 Day 2 Task 3`."""
        return f"Week {self.week} Day {self.day} Task {self.task}"

    @property
    def test_command(self) -> str:
        return f"./course test {self}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        match = re.fullmatch(r"w(\d+)d(\d+)\.(\d+)", text)
        if match is None:
            raise ValueError(f"a task id looks like w1d2.3, got {text!r}")
        return cls(*map(int, match.groups()))


@dataclass(frozen=True)
class Task:
    id: TaskId
    title: Text
    barred: tuple[str, ...]
    contract: int = 1  # grows with each change after which older code may no longer solve the task


@dataclass(frozen=True)
class Day:
    week: int
    number: int
    chapter: Text
    modules: tuple[str, ...]
    tasks: tuple[Task, ...]

    @property
    def test_file(self) -> str:
        """Return the name of the day's file in `tests/`."""
        return f"test_week_{self.week}_day_{self.number}.py"


@dataclass(frozen=True)
class Week:
    number: int
    title: Text
    days: tuple[Day, ...]


def parse_task_ids(docstring: str | None) -> tuple[TaskId, ...]:
    """Return the task ids of a docstring whose last line is `Task: w1d1.2` or `Task: w1d2.1, w1d2.2`. Return () for any
    other docstring."""
    last_line = (docstring or "").strip().rpartition("\n")[2].strip()
    if not last_line.startswith("Task: "):
        return ()
    return tuple(TaskId.parse(part.strip()) for part in last_line.removeprefix("Task: ").split(","))


@cache
def weeks() -> tuple[Week, ...]:
    """Return all weeks, in order."""
    table = read_toml(Path(__file__).parents[1] / "syllabus.toml")
    return tuple(_week(entry) for entry in table["weeks"])


def tasks() -> list[Task]:
    """Return all tasks, in order."""
    return [task for week in weeks() for day in week.days for task in day.tasks]


def day_of(task: TaskId) -> Day:
    """Return the day to which a task belongs."""
    return select_days(str(task.week), str(task.day))[0]


def select_task(text: str) -> Task:
    """Return the task with this id.

    Raises:
        SyllabusError: the syllabus has no such task.
    """
    matching = [task for task in tasks() if str(task.id) == text.lower()]
    if not matching:
        numbers = ".".join(re.findall(r"\d+", text))
        meant = next((task.id for task in tasks() if numbers and task.id.numbers.startswith(numbers)), None)
        example = f"did you mean {meant}?" if meant else f"a task id looks like {tasks()[0].id}."
        raise SyllabusError(f"there is no task {text!r}; {example} `progress` lists all")
    return matching[0]


def select_days(week: str | None, day: str | None) -> list[Day]:
    """Return the days that `--week` and `--day` name: all days, a week's days, or one day.

    Raises:
        SyllabusError: the syllabus has no such week or day, or a day is given without a week.
    """
    if week is None:
        if day is not None:
            raise SyllabusError(f"--day {day} needs a --week; {_existing()}")
        return [day_ for week_ in weeks() for day_ in week_.days]
    in_week = [day_ for week_ in weeks() for day_ in week_.days if str(week_.number) == week]
    if not in_week:
        raise SyllabusError(f"there is no week {week!r}; {_existing()}")
    if day is None:
        return in_week
    chosen = [day_ for day_ in in_week if str(day_.number) == day]
    if not chosen:
        raise SyllabusError(f"week {week} has no day {day!r}; {_existing()}")
    return chosen


def _existing() -> str:
    parts = [f"week {week.number} (days {', '.join(str(day.number) for day in week.days)})" for week in weeks()]
    return f"there is {' and '.join(parts)}"


def _week(entry: dict[str, Any]) -> Week:
    number = entry["number"]
    return Week(number, entry["title"], tuple(_day(number, day) for day in entry["days"]))


def _day(week: int, entry: dict[str, Any]) -> Day:
    number = entry["number"]
    tasks = tuple(
        Task(TaskId(week, number, task["number"]), task["title"], tuple(task["barred"]), task.get("contract", 1))
        for task in entry["tasks"]
    )
    return Day(week, number, entry["chapter"], tuple(entry["modules"]), tasks)
