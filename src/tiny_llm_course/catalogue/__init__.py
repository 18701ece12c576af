"""The catalogue: hints, a closing summary and common mistakes for each task. Each day has a TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..tasks.syllabus import TaskId, Text
from ..tasks.toml import read_toml

__all__ = ["Entry", "Mistake", "entry_of"]


@dataclass(frozen=True)
class Mistake:
    """A plausible wrong solution: the reference with some of its text replaced."""

    id: str
    edits: tuple[tuple[str, str], ...]  # (a text that occurs once in the task's code, its replacement)
    diagnosis: Text


@dataclass(frozen=True)
class Entry:
    """The catalogue's entry about a task: hints, a closing summary, and known mistakes."""

    task: TaskId
    hints: tuple[Text, Text, Text]  # a nudge, where to look, pseudo-code
    learned: Text
    mistakes: tuple[Mistake, ...]

    def mistake(self, id: str | None) -> Mistake | None:
        """Return the mistake with this id. Return None if the catalogue does not have the mistake, or no longer has
        it."""
        return next((mistake for mistake in self.mistakes if mistake.id == id), None)


def entry_of(task: TaskId) -> Entry:
    """Return a task's entry.

    Raises:
        KeyError: the catalogue does not have the task.
    """
    return _entries(task.week, task.day)[task]


@cache
def _entries(week: int, day: int) -> dict[TaskId, Entry]:
    file = Path(__file__).with_name(f"week_{week}_day_{day}.toml")
    table = read_toml(file) if file.exists() else {"tasks": []}
    entries = [_entry(entry) for entry in table["tasks"]]
    return {entry.task: entry for entry in entries}


def _entry(entry: dict[str, Any]) -> Entry:
    first, second, third = entry["hints"]
    return Entry(
        TaskId.parse(entry["id"]),
        (first, second, third),
        entry["learned"],
        # A student's copy has no mistakes.
        tuple(_mistake(mistake, entry["id"]) for mistake in entry.get("mistakes", [])),
    )


def _mistake(entry: dict[str, Any], task: str) -> Mistake:
    if missing := {"id", "edits", "en", "ja"} - entry.keys():
        raise ValueError(f"{task}, mistake {entry.get('id')!r}: missing: {', '.join(sorted(missing))}")
    return Mistake(
        entry["id"],
        tuple((old, new) for old, new in entry["edits"]),
        {"en": entry["en"], "ja": entry["ja"]},
    )
