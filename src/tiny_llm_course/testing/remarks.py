"""Remarks on solved tasks, about requirements that the tests do not check. The tasks still count as solved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from metal_host.toolchain import recent_clang

from ..base.packages import PACKAGES
from ..learner.workspace import Workspace
from ..pytest_runs.test_run import PytestRun
from ..tasks.syllabus import TaskId, Text, day_of
from ..tasks.toml import read_toml
from ..ui import Messages, show, wrapped

__all__ = ["Remark", "remarks", "remarks_on", "show_remarks"]


@dataclass(frozen=True)
class Remark:
    """A remark on some tasks. The remark applies to a task if no part of the learner's code for the task matches
    `expects`."""

    tasks: tuple[TaskId, ...]
    expects: re.Pattern[str]
    text: Text


@cache
def remarks() -> list[Remark]:
    """Return all remarks from remarks.toml."""
    return [
        Remark(tuple(map(TaskId.parse, one["tasks"])), re.compile(one["expects"]), {"en": one["en"], "ja": one["ja"]})
        for one in read_toml(Path(__file__).with_name("remarks.toml"))["remarks"]
    ]


def show_remarks(done: PytestRun, words: Messages) -> None:
    """Show the remarks on the tasks that the learner's code solved in this run."""
    if done.package != PACKAGES["mine"]:
        return
    workspace = Workspace()
    solved = [task for task in done.collected if done.is_solved(task)]
    for task in solved:
        for remark in remarks_on(workspace, task):
            show("\n" + words("remark", task=task), fg="yellow", bold=True)
            show(wrapped(words.of(remark.text)))
    if any(_is_in_metal(workspace, task) for task in solved) and not _has_clang():
        show("\n" + wrapped(words("remark_spaces")), dim=True)


def remarks_on(workspace: Workspace, task: TaskId) -> list[Remark]:
    """Return the remarks that apply to a solved task."""
    written = "\n".join(_written(workspace, file) for file in workspace.parts(day_of(task), task))
    return [remark for remark in remarks() if task in remark.tasks and not remark.expects.search(written)]


def _written(workspace: Workspace, file: Path) -> str:
    """Return the lines of a file that are not in its stub, without comments."""
    lines = [
        re.sub(r"//.*", "", line).strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    given = [re.sub(r"//.*", "", line).strip() for line in workspace.stub(file).splitlines()]
    changes = SequenceMatcher(None, given, lines, autojunk=False).get_opcodes()
    return "\n".join(line for kind, _, _, start, end in changes if kind != "equal" for line in lines[start:end])


def _is_in_metal(workspace: Workspace, task: TaskId) -> bool:
    return any(file.suffix == ".metal" for file in workspace.parts(day_of(task), task))


def _has_clang() -> bool:
    return recent_clang() is not None
