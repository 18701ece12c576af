"""Runs day tests in a pytest of their own, and says what became of each."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from .syllabus import Day, TaskId
from .workspace import ROOT

__all__ = ["HIDDEN", "Result", "Run", "pytest_command", "run_tests"]

TESTS = ROOT / "tests"
HIDDEN = "test_hidden_"  # how the files of an instructor's own tests begin
TIME_LIMIT = 30  # seconds a test; the slowest takes two on a slow machine
_MEANING = dict.fromkeys(("SIGSEGV", "SIGBUS"), ": is there an index beyond an array, or a pointer to nothing?")
GRACE = 15  # seconds beyond a test's own time limit, after which the process is killed


def _time_limit() -> float:
    """Seconds that a test may take: TINY_LLM_TIME_LIMIT, for slow machines, or the default."""
    try:
        return float(os.environ["TINY_LLM_TIME_LIMIT"])
    except (KeyError, ValueError):
        return TIME_LIMIT


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
    """What became of all."""

    results: list[Result] = field(default_factory=list)
    collected: dict[TaskId, int] = field(default_factory=dict)  # tests of each task, chosen or not
    unmarked: list[str] = field(default_factory=list)  # an instructor's tests that belong to no task
    named: dict[TaskId, str] = field(default_factory=dict)  # mistakes, by the catalogue's ids
    running: str = ""  # the test that is running, or in which the process died or was killed
    problem: str = ""  # why it was, or what pytest said if it did not get as far as the tests
    interrupted: bool = False
    seconds: float = 0.0
    started: dict[str, Any] | None = None  # task, name and text of the test that began last

    def take(self, event: dict[str, Any]) -> None:
        """Add what the process says."""
        match event:
            case {"event": "collected", "tests": tests, "unmarked": unmarked}:
                self.collected = {TaskId.parse(task): count for task, count in tests.items()}
                self.unmarked = unmarked
            case {"event": "start", "test": test, "about": started}:
                self.running, self.started = test, started
            case {"event": "result", "task": task, **about}:
                self.results.append(Result(task=TaskId.parse(task), **about))
                self.running = ""
            case {"event": "end", "named": named}:
                self.named = {TaskId.parse(task): name for task, name in named.items()}

    def end_badly(self, problem: str) -> None:
        """The process is gone, and the test that was running has failed by that."""
        self.problem = problem
        if self.running and self.started and not self.interrupted:
            about = self.started | {"task": TaskId.parse(self.started["task"])}
            self.results.append(Result(outcome="failed", message=problem, **about))

    def of(self, task: TaskId) -> list[Result]:
        return [result for result in self.results if result.task == task]

    def is_solved(self, task: TaskId) -> bool:
        """Every test of the task was run, and passed."""
        results = self.of(task)
        count = self.collected.get(task, 0)
        return len(results) == count > 0 and all(result.outcome == "passed" for result in results)


def pytest_command(days: list[Day], package: str, arguments: list[str], tests: Path = TESTS) -> list[str]:
    """The command that runs the tests of some days, and an instructor's beside them."""
    root = tests.parent
    options = ["-q", "--no-header", "--tb=short", f"--rootdir={root}", "-c", str(root / "pyproject.toml")]
    options += ["-p", "no:hypothesispytest", "-p", "no:anyio"]  # a second of imports that no day test needs
    files = [str(tests / day.test_file) for day in days]
    files += [str(file) for file in sorted(tests.glob(f"{HIDDEN}*.py"))]
    return [sys.executable, "-m", "pytest", *options, f"--impl={package}", *arguments, *files]


def run_tests(
    days: list[Day],
    package: str,
    arguments: list[str],
    on_result: Callable[[Run], None] = lambda run: None,
    time_limit: float | None = None,
    tests: Path = TESTS,
    deadline: float = math.inf,
    stop: threading.Event | None = None,
) -> Run:
    """Run tests; `on_result` is called after each. All ends after `deadline` seconds, or when `stop` is set."""
    time_limit = time_limit or _time_limit()
    run = Run()
    start = monotonic()
    read, write = os.pipe()
    with tempfile.TemporaryFile() as output:
        command = [*pytest_command(days, package, arguments, tests), f"--events={write}", f"--time-limit={time_limit}"]
        process = subprocess.Popen(command, pass_fds=[write], stdout=output, stderr=output, start_new_session=True)
        os.close(write)
        try:
            for event in _events(read, time_limit + GRACE, start + deadline, stop):
                run.take(event)
                if event["event"] == "result":
                    on_result(run)
        except TimeoutError as error:
            run.problem = str(error)
        except KeyboardInterrupt:
            run.problem, run.interrupted = "interrupted", True
        finally:
            os.close(read)
            code = _end(process, wait=not run.problem)
        if run.running or code not in (0, 1, 5):
            output.seek(0)
            run.end_badly(run.problem or _death(code, output.read().decode(errors="replace")))
    run.seconds = monotonic() - start
    return run


def _events(descriptor: int, patience: float, end: float, stop: threading.Event | None) -> Iterator[dict[str, Any]]:
    """The lines of JSON that come, until the writer is gone. Raises a TimeoutError that says why, if it takes long."""
    pending, heard = b"", monotonic()
    while True:
        ready, _, _ = select.select([descriptor], [], [], 0.5)
        if monotonic() > end:
            raise TimeoutError("ended because all tests together took too long")
        if stop and stop.is_set():
            raise TimeoutError("interrupted")
        if not ready and monotonic() - heard > patience:
            raise TimeoutError(f"ended after {patience:g} seconds without an answer: is there a loop that never ends?")
        if ready:
            data, heard = os.read(descriptor, 65536), monotonic()
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            yield from (json.loads(line) for line in lines)


def _end(process: subprocess.Popen[bytes], wait: bool) -> int:
    """Its exit code. Nothing that it started is left behind."""
    try:
        if wait:
            process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _death(code: int, output: str) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        return f"the code under test ended Python with {name}" + _MEANING.get(name, "")
    return output.strip()[-4000:] or f"pytest ended with exit code {code}"
