"""The hours that each day takes, and the paths through the course: `hours` and `core` in syllabus.toml.

Hours are read in this module instead of syllabus.py, which tests use, so that no test depends on hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from .syllabus import Day, select_days
from .toml import read_toml

__all__ = ["ALL", "CORE", "PATHS", "about", "days_of", "hours"]

ALL, CORE = "all", "core"
PATHS = (CORE, ALL)


def hours(days: Iterable[Day]) -> float:
    """Return the total number of hours for these days."""
    return sum(float(_entry(day)["hours"]) for day in days)


def about(hours: float) -> int:
    """Round hours to a whole number."""
    return int(hours + 0.5)


def days_of(path: str) -> list[Day]:
    """Return the days on a path, in order."""
    return [day for day in select_days(None, None) if path == ALL or _entry(day).get("core", False)]


def _entry(day: Day) -> dict[str, Any]:
    return _entries()[day.week, day.number]


@cache
def _entries() -> dict[tuple[int, int], dict[str, Any]]:
    """Return the entries of the days in syllabus.toml, keyed by week and day number."""
    table = read_toml(Path(__file__).parents[1] / "syllabus.toml")
    return {(week["number"], day["number"]): day for week in table["weeks"] for day in week["days"]}
