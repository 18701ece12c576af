"""Runs the tests of some days in separate processes, and keeps the result of each test."""

from __future__ import annotations

import math
import os
import select
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias, TypedDict

from ..base.places import ROOT
from ..tasks.syllabus import Day, TaskId
from .pytest_process import PytestProcess

__all__ = [
    "HIDDEN",
    "TIME_LIMIT",
    "Advice",
    "Frame",
    "PytestRun",
    "Result",
    "asked_time_limit",
    "files_of",
    "pytest_command",
    "run_tests",
]

Advice: TypeAlias = tuple[str, dict[str, str]]  # a key of messages.toml, and the values for its placeholders

TESTS = ROOT / "tests"
HIDDEN = "test_hidden_"  # the prefix of an instructor's own test files
TIME_LIMIT = 30  # seconds for each test, plus compiling; the slowest test takes 2 s on a slow machine
GRACE = 5  # seconds between the end of a test's time limit and the end of its process
COMPILING = 600  # seconds after which a compiler or a starting process counts as hung
WORST = ("crash", "hang", "changed")  # kinds of failures that are shown before all others, in this order


class Frame(TypedDict):
    """A line of a traceback."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class Result:
    """The result of one test."""

    test: str
    task: TaskId
    outcome: str  # passed, failed, unsolved, skipped, or not run
    kind: str = ""  # the kind of failure: one of WORST, or "" for any other failure
    hidden: bool = False  # whether the test is an instructor's own
    message: str = ""
    advice: Advice | None = None
    doc: str = ""
    printed: str = ""
    frames: list[Frame] = field(default_factory=list)
    stub: dict[str, Any] = field(default_factory=dict)


@dataclass
class PytestRun:
    """The results of a run so far."""

    package: str = ""  # the package under test
    results: list[Result] = field(default_factory=list)
    collected: Counter[TaskId] = field(default_factory=Counter)  # all tests of each task
    chosen: Counter[TaskId] = field(default_factory=Counter)  # tests of each task that this run executes
    begun: Counter[TaskId] = field(default_factory=Counter)  # tests of each task that were started
    finished: Counter[TaskId] = field(default_factory=Counter)  # tests of each task that have a result
    unmarked: list[str] = field(default_factory=list)  # an instructor's tests that belong to no task
    lost: Counter[TaskId] = field(default_factory=Counter)  # tests that did not run because their process died
    compiling: str = ""  # the file that a compiler compiles for a test
    named: dict[TaskId, str] = field(default_factory=dict)  # task -> the id of the known mistake that was named
    left: dict[TaskId, tuple[int, int]] = field(
        default_factory=dict
    )  # task -> the number of known mistakes that the run had no time to try, and the number of all known mistakes
    running: str = ""  # the test in which a process died or was killed
    problem: str = ""  # why that process ended, or pytest's message if pytest ran no tests
    interrupted: bool = False
    is_collected: bool = False  # whether every process has said which tests it will run
    seconds: float = 0.0

    def take(self, event: dict[str, Any]) -> None:
        """Add an event that a process has sent."""
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
            case {"event": "compiling", "file": file}:
                self.compiling = file
            case {"event": "end", "named": named, "left": left}:
                self.named |= _by_task(named)
                self.left |= {task: (few, many) for task, (few, many) in _by_task(left).items() if few}

    def end(self, process: PytestProcess, problem: str = "") -> None:
        """End a process. If the process was killed or crashed, the test that was running counts as failed."""
        problem, about = process.end(problem)
        self.problem = self.problem or problem
        self.running = self.running or process.running
        left = Counter(_by_task(process.left or {}))
        self.chosen.subtract(left)
        if problem and about and not self.interrupted:
            kind = "hang" if process.was_killed else "crash"
            about["task"] = TaskId.parse(about["task"])
            failed = Result(outcome="failed", kind=kind, message=problem, **about)
            self.chosen[failed.task] += 1
            left[failed.task] -= 1
            self._add(failed)
        self.lost.update(left)

    def _add(self, result: Result) -> None:
        self.results.append(result)
        self.finished[result.task] += 1

    @property
    def failures(self) -> list[Result]:
        """Return the results of the failed tests, the worst kinds first."""
        rank = {kind: number for number, kind in enumerate(WORST)}
        failed = [result for result in self.results if result.outcome == "failed"]
        return sorted(failed, key=lambda result: rank.get(result.kind, len(WORST)))

    @property
    def num_not_run(self) -> int:
        """Return the number of chosen tests that did not run."""
        return self.lost.total() + sum(result.outcome == "not run" for result in self.results)

    def of(self, task: TaskId) -> list[Result]:
        return [result for result in self.results if result.task == task]

    def is_solved(self, task: TaskId) -> bool:
        """Tell whether every test of the task has run and passed."""
        results = self.of(task)
        count = self.collected[task]
        return len(results) == count > 0 and all(result.outcome == "passed" for result in results)


def _by_task(values: dict[str, Any]) -> dict[TaskId, Any]:
    return {TaskId.parse(task): value for task, value in values.items()}


def files_of(days: list[Day], tests: Path = TESTS) -> list[Path]:
    """Return the test files of some days, followed by an instructor's own test files."""
    return [*(tests / day.test_file for day in days), *sorted(tests.glob(f"{HIDDEN}*.py"))]


def pytest_command(files: list[Path], package: str, arguments: list[str], tests: Path = TESTS) -> list[str]:
    """Return the command that runs the tests in some files."""
    root = tests.parent
    options = ["-q", "--no-header", "--tb=short", f"--rootdir={root}", "-c", str(root / "pyproject.toml")]
    options += ["-p", "no:hypothesispytest", "-p", "no:anyio"]  # slow to import, and no day test needs them
    return [sys.executable, "-m", "pytest", *options, f"--impl={package}", *arguments, *map(str, files)]


def run_tests(
    days: list[Day],
    package: str,
    arguments: list[str],
    on_event: Callable[[PytestRun], None] = lambda run: None,
    time_limit: float = TIME_LIMIT,
    tests: Path = TESTS,
    deadline: float = math.inf,
    stop: threading.Event | None = None,
    jobs: int = 1,
    folder: Path | None = None,
) -> PytestRun:
    """Run tests in up to `jobs` processes, each with a share of the files.

    on_event: a function that is called with the run so far after each new event.
    time_limit: seconds that a test may take, not counting compilation.
    deadline: seconds after which all processes are killed.
    stop: setting this event kills all processes at once.
    folder: the working directory of the processes. None: the current directory.
    """
    run, start = PytestRun(package), monotonic()
    files = files_of(days, tests)
    shares = [files[first::jobs] for first in range(min(jobs, len(files)))]
    processes: list[PytestProcess] = []
    try:
        for share in shares:
            command = [*pytest_command(share, package, arguments, tests), f"--time-limit={time_limit}"]
            processes.append(PytestProcess(command, folder))
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
    if len(shares) > 1:  # sort into the order in which one process would run the tests
        run.results.sort(key=lambda result: (result.hidden, result.task.week, result.task.day))
    run.seconds = monotonic() - start
    return run


def _listen(
    processes: list[PytestProcess],
    run: PytestRun,
    on_event: Callable[[PytestRun], None],
    patience: float,
    end: float,
    stop: threading.Event | None,
) -> None:
    """Add the processes' events to the run. End each process after its last event, and remove the process from the
    list.

    Raises:
        TimeoutError: the caller must end all processes. The message gives the reason.
    """
    while processes:
        ready, _, _ = select.select([process.descriptor for process in processes], [], [], 0.5)
        if monotonic() > end:
            raise TimeoutError("ended because all tests together took too long")
        if stop and stop.is_set():
            raise TimeoutError("interrupted")
        for process in list(processes):
            events = process.events() if process.descriptor in ready else []
            waits = process.is_compiling or process.left is None  # the process waits for a compiler, or for imports
            hangs = events == [] and monotonic() - process.heard > (COMPILING if waits else patience)
            for event in events or []:
                run.take(event)
            if events is None or hangs or process.is_over:
                processes.remove(process)
                why = f"ended after {patience:g} seconds without an answer: is there a loop that never ends?"
                run.end(process, why if hangs else "")
            run.is_collected = all(process.left is not None for process in processes)
            if events != [] or hangs:
                on_event(run)


def asked_time_limit() -> float:
    """Return the time limit of a test in seconds: TINY_LLM_TIME_LIMIT from the environment, or the default.

    Raises:
        CommandError: TINY_LLM_TIME_LIMIT is not a number greater than 0.
    """
    from ..ui import CommandError, phrase  # imported here, since tests load this module and need no messages

    text = os.environ.get("TINY_LLM_TIME_LIMIT") or str(TIME_LIMIT)
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise CommandError("wrong_value", option="TINY_LLM_TIME_LIMIT", expected=phrase("above", least=0), got=text)
