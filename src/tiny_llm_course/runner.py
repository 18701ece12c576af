"""Runs day tests in processes of their own, and says what became of each."""

from __future__ import annotations

import math
import os
import select
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from .pytest_process import PytestProcess
from .syllabus import Day, TaskId
from .workspace import ROOT

__all__ = ["HIDDEN", "Result", "Run", "files_of", "processors", "pytest_command", "run_tests"]

TESTS = ROOT / "tests"
HIDDEN = "test_hidden_"  # how the files of an instructor's own tests begin
TIME_LIMIT = 30  # seconds a test; the slowest takes two on a slow machine
GRACE = 15  # seconds beyond a test's own time limit, after which the process is killed


def _time_limit() -> float:
    """Seconds that a test may take: TINY_LLM_TIME_LIMIT, for slow machines, or the default."""
    try:
        return float(os.environ["TINY_LLM_TIME_LIMIT"])
    except (KeyError, ValueError):
        return TIME_LIMIT


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Result:
    """What became of a test."""

    test: str
    task: TaskId
    outcome: str  # passed, failed, unsolved or skipped
    hidden: bool = False  # an instructor's own test
    message: str = ""
    doc: str = ""
    printed: str = ""
    frames: list[dict[str, Any]] = field(default_factory=list)
    stub: dict[str, Any] = field(default_factory=dict)


@dataclass
class Run:
    """The results of a run, as far as they are known."""

    results: list[Result] = field(default_factory=list)
    collected: Counter[TaskId] = field(default_factory=Counter)  # tests of each task, chosen or not
    chosen: Counter[TaskId] = field(default_factory=Counter)  # tests of each task that are run
    begun: Counter[TaskId] = field(default_factory=Counter)  # of which so many were started,
    finished: Counter[TaskId] = field(default_factory=Counter)  # and so many have a result
    unmarked: list[str] = field(default_factory=list)  # an instructor's tests that belong to no task
    named: dict[TaskId, str] = field(default_factory=dict)  # mistakes, by the catalogue's ids
    running: str = ""  # the test in which a process died or was killed
    problem: str = ""  # why it was, or what pytest said if it did not get as far as the tests
    interrupted: bool = False
    is_collected: bool = False  # whether every process has said which tests it is going to run
    seconds: float = 0.0

    def take(self, event: dict[str, Any]) -> None:
        """Add what a process says."""
        match event:
            case {"event": "collected", "tests": tests, "unmarked": unmarked}:
                self.collected.update(_by_task(tests))
                self.unmarked += unmarked
            case {"event": "chosen", "tests": tests}:
                self.chosen.update(_by_task(tests))
            case {"event": "start", "about": {"task": task}}:
                self.begun[TaskId.parse(task)] += 1
            case {"event": "result", "task": task, **about}:
                self._add(Result(task=TaskId.parse(task), **about))
            case {"event": "end", "named": named}:
                self.named |= _by_task(named)

    def end(self, process: PytestProcess, problem: str = "") -> None:
        """End a process. If it did not end by itself, the test that was running has failed."""
        problem, about = process.end(problem)
        self.problem = self.problem or problem
        self.running = self.running or process.running
        self.chosen.subtract(_by_task(process.left or {}))
        if problem and about and not self.interrupted:
            failed = Result(outcome="failed", message=problem, **about | {"task": TaskId.parse(about["task"])})
            self.chosen[failed.task] += 1
            self._add(failed)

    def _add(self, result: Result) -> None:
        self.results.append(result)
        self.finished[result.task] += 1

    def of(self, task: TaskId) -> list[Result]:
        return [result for result in self.results if result.task == task]

    def is_solved(self, task: TaskId) -> bool:
        """Every test of the task was run, and passed."""
        results = self.of(task)
        count = self.collected[task]
        return len(results) == count > 0 and all(result.outcome == "passed" for result in results)


def _by_task(values: dict[str, Any]) -> dict[TaskId, Any]:
    return {TaskId.parse(task): value for task, value in values.items()}


def files_of(days: list[Day], tests: Path = TESTS) -> list[Path]:
    """The files with the tests of some days, and then an instructor's own."""
    return [*(tests / day.test_file for day in days), *sorted(tests.glob(f"{HIDDEN}*.py"))]


def pytest_command(files: list[Path], package: str, arguments: list[str], tests: Path = TESTS) -> list[str]:
    """The command that runs the tests in some files."""
    root = tests.parent
    options = ["-q", "--no-header", "--tb=short", f"--rootdir={root}", "-c", str(root / "pyproject.toml")]
    options += ["-p", "no:hypothesispytest", "-p", "no:anyio"]  # a second of imports that no day test needs
    return [sys.executable, "-m", "pytest", *options, f"--impl={package}", *arguments, *map(str, files)]


def run_tests(
    days: list[Day],
    package: str,
    arguments: list[str],
    on_event: Callable[[Run], None] = lambda run: None,
    time_limit: float | None = None,
    tests: Path = TESTS,
    deadline: float = math.inf,
    stop: threading.Event | None = None,
    jobs: int = 1,
) -> Run:
    """Run tests in up to `jobs` processes, each with a share of the files.

    on_event: gets the run so far, after each new event.
    deadline: seconds after which all processes are killed. Setting `stop` kills them at once.
    """
    time_limit = time_limit or _time_limit()
    run, start = Run(), monotonic()
    files = files_of(days, tests)
    shares = [files[first::jobs] for first in range(min(jobs, len(files)))]
    processes: list[PytestProcess] = []
    try:
        for share in shares:
            command = [*pytest_command(share, package, arguments, tests), f"--time-limit={time_limit}"]
            processes.append(PytestProcess(command))
        _listen(processes, run, on_event, time_limit + GRACE, start + deadline, stop)
    except TimeoutError as error:
        run.problem = str(error)
    except KeyboardInterrupt:
        run.problem, run.interrupted = "interrupted", True
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            run.end(process, run.problem or "ended")
    if len(shares) > 1:  # in the order of one process
        run.results.sort(key=lambda result: (result.hidden, result.task.week, result.task.day))
    run.seconds = monotonic() - start
    return run


def _listen(
    processes: list[PytestProcess],
    run: Run,
    on_event: Callable[[Run], None],
    patience: float,
    end: float,
    stop: threading.Event | None,
) -> None:
    """Take what processes say, and end each that has said all; it leaves the list.

    Raises:
        TimeoutError: all are to be ended; says why.
    """
    while processes:
        ready, _, _ = select.select([process.descriptor for process in processes], [], [], 0.5)
        if monotonic() > end:
            raise TimeoutError("ended because all tests together took too long")
        if stop and stop.is_set():
            raise TimeoutError("interrupted")
        for process in list(processes):
            events = process.events() if process.descriptor in ready else []
            hangs = events == [] and monotonic() - process.heard > patience
            for event in events or []:
                run.take(event)
            if events is None or hangs:
                processes.remove(process)
                why = f"ended after {patience:g} seconds without an answer: is there a loop that never ends?"
                run.end(process, why if hangs else "")
            run.is_collected = all(process.left is not None for process in processes)
            if events != [] or hangs:
                on_event(run)
