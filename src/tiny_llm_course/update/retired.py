"""Replaces a learner's code for a task with the task's stub if the newer course has changed the task."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ..tasks.regions import any_regions, is_native, with_regions
from ..tasks.splice import excerpt, parts_of_source, put
from ..tasks.syllabus import TaskId
from .carrying import helpers_of
from .contracts import Changed
from .written import tasks_by_name, written

__all__ = ["Retired", "code_of_task", "retire"]


@dataclass(frozen=True)
class Retired:
    """A learner's file with stubs in place of the code of some tasks.

    code: the replaced code, keyed by task. helpers: the learner's own definitions that the replaced code uses. The file
    keeps these definitions.
    """

    text: str
    code: dict[TaskId, str] = field(default_factory=dict)
    helpers: frozenset[str] = frozenset()


def retire(yours: str, stub: str, filename: str, changed: Changed) -> Retired:
    """Put the stub back in place of the learner's code for tasks whose contract has changed.

    stub: the stub from which the file began. Raises a SpliceError if the file has a syntax error or faulty markers.
    """
    tasks = {
        name: {task for task in tasks if task in changed and name not in changed[task]}
        for name, tasks in tasks_by_name(stub, filename).items()
    }
    mine = written(yours, [name for name in tasks if tasks[name]], filename)
    if not mine:
        return Retired(yours)
    if is_native(filename):
        regions = {task: code for task, code in any_regions(yours, filename).items() if str(task) in mine}
        stubs = {task: text for task, text in any_regions(stub, filename).items() if task in regions}
        return Retired(with_regions(yours, stubs, filename), regions)
    code = {}
    for task in sorted({task for name in mine for task in tasks[name]}):
        names = [name for name in mine if task in tasks[name]]
        code[task] = excerpt(yours, [*names, *_helpers(yours, stub, names)])
    text = yours
    for name in mine:
        text = put(text, stub, name, filename)
    return Retired(text, code, frozenset(_helpers(yours, stub, mine)))


def code_of_task(source: str, task: TaskId, filename: str, kept: Collection[str] = ()) -> str:
    """Return a file's code for a task: functions with the heads of their classes, or a region. Return "" if the file
    has no code for the task. kept: functions to leave out, because the learner's code for them stays."""
    names = [name for name, tasks in tasks_by_name(source, filename).items() if task in tasks and name not in kept]
    if not names:
        return ""
    return any_regions(source, filename)[task] if is_native(filename) else excerpt(source, names)


def _helpers(yours: str, stub: str, names: Collection[str]) -> list[str]:
    """Find the learner's own definitions that these functions use."""
    given = parts_of_source(stub)
    return [name for name in helpers_of(yours, names) if name not in given]
