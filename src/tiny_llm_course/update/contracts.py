"""Finds the tasks whose contract a newer course has changed, by comparing two versions of syllabus.toml. The contract
of a task says what the task's code must do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..tasks.syllabus import TaskId
from ..tasks.toml import parse_toml

__all__ = ["SYLLABUS", "Changed", "changed_contracts", "new_tasks"]

SYLLABUS = "src/tiny_llm_course/syllabus.toml"
Changed: TypeAlias = Mapping[TaskId, Collection[str]]  # task -> the functions whose old code is kept


@dataclass(frozen=True)
class _Contract:
    number: int
    kept: tuple[str, ...]


def changed_contracts(old: str, new: str) -> Changed:
    """Return the tasks that are in both syllabuses and have a higher contract number in the newer syllabus."""
    before, after = _contracts(old), _contracts(new)
    return {
        task: contract.kept
        for task, contract in after.items()
        if task in before and contract.number > before[task].number
    }


def new_tasks(old: str, new: str) -> list[TaskId]:
    """Return the tasks that only the newer syllabus has."""
    return sorted(_contracts(new).keys() - _contracts(old).keys())


def _contracts(syllabus: str) -> dict[TaskId, _Contract]:
    return {
        TaskId(week["number"], day["number"], task["number"]): _Contract(
            task.get("contract", 1), tuple(task.get("kept", ()))
        )
        for week in parse_toml(syllabus)["weeks"]
        for day in week["days"]
        for task in day["tasks"]
    }
