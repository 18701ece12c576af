"""Shows a line for each tested task as soon as the task's last test has ended."""

from __future__ import annotations

from ..learner.workspace import Workspace
from ..pytest_runs.test_run import PytestRun, Result
from ..tasks.syllabus import Day, Task, TaskId
from ..tasks.unsolved import task_in_message
from ..ui import Messages, StatusLine, show, signs

__all__ = ["TaskLines", "open_task_of"]


class TaskLines:
    """Lines for the tested tasks, in the order of the course, under a heading for each day.

    A terminal also shows how many tests have ended. If several days are tested at the same time, a line waits until
    all earlier lines are printed.

    workspace: the learner's workspace. None if the run tests the reference, which has no stubs.
    """

    def __init__(self, days: list[Day], workspace: Workspace | None, words: Messages):
        self._waiting = [(day, task) for day in days for task in day.tasks]
        self._workspace = workspace
        self._words = words
        self._day: Day | None = None  # the day whose heading was printed last
        self._status = StatusLine()

    def update(self, run: PytestRun) -> None:
        """Print the lines of tasks whose last test has ended."""
        if run.is_collected:
            while self._waiting and run.finished[self._waiting[0][1].id] >= run.chosen[self._waiting[0][1].id]:
                self._print_next(run)
            done, count = run.finished.total(), run.chosen.total()
            running = [task for task in run.begun if run.finished[task] < run.chosen[task]]
            compiling = [self._words("run_compiling", file=run.compiling)] if run.compiling else []
            self._status.show(
                "  ".join([self._words("run_status", done=done, count=count), *map(str, running), *compiling])
            )

    def finish(self, run: PytestRun) -> None:
        """Print the remaining lines, except for tasks without a result."""
        while self._waiting:
            self._print_next(run)
        self._status.clear()

    def _print_next(self, run: PytestRun) -> None:
        day, task = self._waiting.pop(0)
        if results := run.of(task.id):
            self._status.clear()
            if day != self._day:
                chapter = self._words.of(day.chapter)
                show(self._words("run_day", week=day.week, day=day.number, chapter=chapter), bold=True)
                self._day = day
            self._show(task, results)

    def _show(self, task: Task, results: list[Result]) -> None:
        failed, unsolved = (sum(result.outcome == outcome for result in results) for outcome in ("failed", "unsolved"))
        if failed:
            mark, colour, text = signs().failed, "red", self._words("run_failed", failed=failed, count=len(results))
        elif unsolved:
            first = min(open_task_of(result) for result in results if result.outcome == "unsolved")
            stubs = self._workspace.stubs if self._workspace else {}
            text = self._words("run_unsolved") if task.id in {first, *stubs} else self._words("run_waits", task=first)
            mark, colour = signs().open, None
        else:
            mark, colour, text = signs().solved, "green", self._words("run_passed", count=len(results))
        show(f"  {mark} {task.id}  {self._words.of(task.title)}: {text}", fg=colour)


def open_task_of(stub: Result) -> TaskId:
    """Return the task that the learner has to write first: the tested task, or an earlier task on which the tested task
    builds."""
    return task_in_message(stub.stub["message"]) or stub.task
