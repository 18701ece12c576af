"""Grades: the points of each submission, task by task. Only the judge's process gives points."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.places import ROOT
from ..learner.workspace import Workspace
from ..native.kernel_files import has_kernels
from ..pytest_runs.test_run import HIDDEN, PytestRun, run_tests
from ..tasks.regions import code_files
from ..tasks.syllabus import Day, Task, TaskId, select_task
from ..ui import CommandError
from .kernel_builds import compile_submitted, is_taken, replaced
from .locate import listed
from .plain import plain, plain_name
from .sandbox import NONE
from .submissions import Submission

__all__ = ["SOLVED", "UNSOLVED", "Grade", "GradingLimits", "TaskGrade", "grade_all"]

SOLVED, FAILED, UNSOLVED = "solved", "failed", "unsolved"
_SYSTEM = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
TROUBLE = (  # signs in messages that the machine is at fault: a process died or was killed, or disk or memory is full
    *("GoneError", "MetalHostError", "MemoryError", "Killed signal"),
    *map(os.strerror, _SYSTEM),
)


@dataclass(frozen=True)
class TaskGrade:
    """The grade of one task: one point if all its tests pass, otherwise no point."""

    task: TaskId
    passed: int
    total: int
    outcome: str  # SOLVED, FAILED or UNSOLVED
    mistake: str = ""  # the mistake's id in the catalogue
    test: str = ""  # the first test that failed
    message: str = ""  # that test's message
    hidden: bool = False  # whether that test is one of the instructor's own tests

    @property
    def points(self) -> int:
        return int(self.outcome == SOLVED)

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {"task": str(self.task)}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> TaskGrade:
        texts = {key: plain(value) for key, value in entry.items() if isinstance(value, str)}
        task = cls(**entry | texts | {"task": select_task(entry["task"]).id})
        if task.outcome not in (SOLVED, FAILED, UNSOLVED):
            raise ValueError(f"expected an outcome, got {task.outcome!r}")
        return task


@dataclass(frozen=True)
class Grade:
    """The grade of one submission."""

    name: str
    tasks: tuple[TaskGrade, ...]
    problem: str = ""  # why the tests did not run or did not end, and which files were not used
    seconds: float = 0.0
    protection: str = ""  # the sandbox of the submission's processes, or NONE; empty if no tests ran
    is_final: bool = True  # False: the machine may be at fault, so another run may give another grade

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {"points": self.points, "tasks": [task.as_json() for task in self.tasks]}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> Grade:
        """Read a grade from the result of `as_json`.

        Raises:
            ValueError: the entry is not such a result.
        """
        try:
            tasks = tuple(map(TaskGrade.from_json, entry["tasks"]))
            name, problem, protection = plain_name(entry["name"]), plain(entry["problem"]), entry.get("protection", "")
            return cls(name, tasks, problem, float(entry["seconds"]), plain_name(protection))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(repr(error)) from error


@dataclass(frozen=True)
class GradingLimits:
    """The limits on a submission's time and memory, and the sandbox that it runs in."""

    patience: float = 10  # seconds that a test waits for one answer
    seconds: float = 300  # seconds for all tests
    memory: int = 2**32  # bytes
    sandbox: str = NONE  # the sandbox's name in sandbox.py


def grade_all(
    submissions: list[Submission],
    days: list[Day],
    hidden: Path | None,
    limits: GradingLimits,
    jobs: int,
    on_grade: Callable[[Grade], None],
) -> list[Grade]:
    """Grade up to `jobs` submissions at a time, and return the grades in the order of the submissions. Ctrl-C ends all
    processes.

    on_grade: a function that is called with each grade as soon as the submission is graded.
    """
    stop = threading.Event()
    with _tests(hidden) as tests, ThreadPoolExecutor(jobs) as pool:
        if hidden is not None:
            _check_hidden(days, tests)
        waiting = {
            pool.submit(_grade_safely, submission, days, tests, limits, stop): number
            for number, submission in enumerate(submissions)
        }
        grades: dict[int, Grade] = {}
        try:
            for done in as_completed(waiting):
                grades[waiting[done]] = done.result()
                on_grade(grades[waiting[done]])
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [grades[number] for number in range(len(submissions))]


@contextmanager
def _tests(hidden: Path | None) -> Iterator[Path]:
    """Yield the folder of the tests: the course's own folder, or a copy with the instructor's tests added."""
    if hidden is None:
        yield ROOT / "tests"
        return
    with tempfile.TemporaryDirectory() as folder:
        tests = Path(folder) / "tests"
        shutil.copytree(ROOT / "tests", tests, ignore=shutil.ignore_patterns("repo", "train", "__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        for file in sorted(hidden.glob("*.py")):
            shutil.copy(file, tests / f"{HIDDEN}{file.stem}.py")
        yield tests


def _check_hidden(days: list[Day], tests: Path) -> None:
    run = run_tests(days, "tiny_llm", ["--collect-only"], tests=tests, folder=tests.parent)
    if run.problem:
        raise CommandError("grade_hidden_unreadable", reason=run.problem)
    if run.unmarked:
        example = days[0].tasks[0].id
        raise CommandError("grade_hidden_unmarked", example=example, tests=", ".join(run.unmarked))


def _grade_safely(
    submission: Submission, days: list[Day], tests: Path, limits: GradingLimits, stop: threading.Event
) -> Grade:
    """Return a grade even if grading raises an error, so that the other submissions are graded as well."""
    problem = submission.problem
    if not problem:
        try:
            return _grade(submission, days, tests, limits, stop)
        except Exception as error:
            problem = plain(f"could not be graded: {type(error).__name__}: {error}")
    return Grade(submission.name, tuple(_not_tested(task) for day in days for task in day.tasks), problem)


def _grade(submission: Submission, days: list[Day], tests: Path, limits: GradingLimits, stop: threading.Event) -> Grade:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "tiny_llm"
        _lay_out(submission, package)
        is_compiled = not has_kernels(days) or compile_submitted(
            package, limits.sandbox, limits.memory, limits.seconds, stop
        )
        options = [f"--submission={folder}", f"--sandbox={limits.sandbox}", f"--basetemp={folder}/made"]
        options += [f"--patience={limits.patience}", f"--memory={limits.memory}"]
        run = run_tests(
            days,
            "tiny_llm",
            options,
            time_limit=3 * limits.patience,
            tests=tests,
            deadline=limits.seconds,
            stop=stop,
            folder=tests.parent,  # not the current folder, where a submitted pytest.py may be
        )
    tasks = tuple(_task_grade(task, run) for day in days for task in day.tasks)
    unused = replaced(submission.files, Workspace())
    note = f"not used, since the course has its own: {listed(unused)}" if unused else ""
    problem = "; ".join(filter(None, [submission.note, note, plain(run.problem)]))
    return Grade(submission.name, tasks, problem, run.seconds, limits.sandbox, is_compiled and _is_final(run))


def _is_final(run: PytestRun) -> bool:
    """Tell whether the run ended by itself, and without a message that hints at trouble with the machine."""
    return not run.problem and not any(trouble in result.message for result in run.results for trouble in TROUBLE)


def _lay_out(submission: Submission, package: Path) -> None:
    """Write the package to test: the submitted files, and stubs for files that are missing."""
    workspace = Workspace()
    for stub in code_files(workspace.package):
        path = stub.relative_to(workspace.package)
        target = package / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(workspace.stub(stub), encoding="utf-8")
    for name, content in submission.files.items():
        if not is_taken(name, workspace):
            continue
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_bytes(content)


def _task_grade(task: Task, run: PytestRun) -> TaskGrade:
    results = run.of(task.id)
    total = max(run.collected.get(task.id, 0), len(results))
    passed = sum(result.outcome == "passed" for result in results)
    if passed == total > 0:
        return TaskGrade(task.id, passed, total, SOLVED)
    first = next((result for result in results if result.outcome != "passed"), None)
    if first is None:
        return TaskGrade(task.id, passed, total, FAILED, message=plain(run.problem))
    if first.outcome == "unsolved" and passed == 0:
        return TaskGrade(task.id, passed, total, UNSOLVED, test=first.test, message=plain(str(first.stub["message"])))
    named = run.named.get(task.id, "")
    return TaskGrade(task.id, passed, total, FAILED, named, first.test, plain(first.message), first.hidden)


def _not_tested(task: Task) -> TaskGrade:
    return TaskGrade(task.id, 0, 0, FAILED)
