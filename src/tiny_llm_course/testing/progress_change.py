"""Records the outcome of a test run in the learner's progress."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..learner.progress import SKIPPED, SOLVED
from ..learner.workspace import CodePlace, Workspace
from ..pytest_runs.test_run import PytestRun
from ..tasks.syllabus import TaskId

__all__ = ["ProgressChange", "keep_progress"]


@dataclass
class ProgressChange:
    """The changes that a run makes to the learner's progress."""

    solved: list[TaskId] = field(default_factory=list)  # solved for the first time by this run
    skipped: list[TaskId] = field(default_factory=list)  # skipped tasks whose tests passed; they stay marked as skipped
    stubs: dict[TaskId, CodePlace] = field(default_factory=dict)  # the place of each open task's first stub


def keep_progress(workspace: Workspace, done: PytestRun) -> ProgressChange:
    """Record which tasks are solved, and which known mistakes the run found."""
    states: dict[TaskId, str | None] = {}
    kept = ProgressChange(stubs=workspace.stubs)
    diagnosed: dict[TaskId, str | None] = {}
    for task in done.collected:
        results = done.of(task)
        before = workspace.state(task)
        if done.is_solved(task):
            states[task] = before or SOLVED  # a skipped task stays skipped
            kept.solved += [task] if before is None else []
            kept.skipped += [task] if before == SKIPPED else []
        elif any(result.outcome != "passed" for result in results):
            states[task] = None
        if results:
            diagnosed[task] = done.named.get(task)
    workspace.note("diagnosed", diagnosed)
    workspace.progress.set(states)
    return kept
