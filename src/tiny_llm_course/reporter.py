"""The course's part in pytest: knows stubs, names mistakes, ends tests that hang, reports to `tiny-llm test`."""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import pytest

from .catalogue import entry_of
from .diagnosis import Diagnosis
from .packages import Test, prepare, replay, task_of, test_of
from .recording import Observation, recording
from .runner import HIDDEN, TIME_LIMIT
from .syllabus import TaskId, tasks
from .unsolved import task_in_message
from .workspace import ROOT, Workspace

SEEN = pytest.StashKey[Observation]()

MAX_MESSAGE = 10_000  # characters
COMPILE_SECONDS = 5  # that naming a mistake in C++ or Metal may take; what was compiled is there the next time

Arguments: TypeAlias = dict[str, Any]


Failed = pytest.fail.Exception


class Unsolved(Failed):  # type: ignore[misc, valid-type]
    """A test ended at a stub. Without traceback: it says nothing that the message does not."""

    def __init__(self, error: NotImplementedError):
        super().__init__(f"NotImplementedError: {error}", pytrace=False)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        self.stub = {"file": frame.filename, "line": frame.lineno, "message": str(error)}


class TimedOut(BaseException):
    """A test took too long. No Exception, so that a learner's `except Exception` does not catch it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--events", type=int, metavar="FD", help="write what happens as lines of JSON to this descriptor")
    parser.addoption("--time-limit", type=float, default=TIME_LIMIT, metavar="S", help="end a test after S seconds")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Course(config), "course")


class _Course:
    """What is kept during a run."""

    def __init__(self, config: pytest.Config):
        self._package = str(config.getoption("--impl"))
        self._events = config.getoption("--events")
        self._time_limit = float(config.getoption("--time-limit"))
        self._has_mistakes = Workspace().has_solutions and self._package == "tiny_llm"
        self._diagnoses: dict[TaskId, Diagnosis[Test]] = {}
        self._endless: set[TaskId] = set()  # tasks of which a test took too long
        if self._events is not None:
            sys.breakpointhook = _no_debugger

    def pytest_enter_pdb(self) -> None:
        _end_time_limit()  # thinking takes longer

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        counts = Counter(str(task) for item in items if (task := task_of(item)))
        known = {task.id for task in tasks()}
        unmarked = [item.name for item in items if _is_hidden(item) and task_of(item) not in known]
        self._send("collected", tests=dict(counts), unmarked=unmarked)  # before -k takes some away

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._send("chosen", tests=dict(Counter(str(task) for item in session.items if (task := task_of(item)))))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """What is known before the test runs, since it may end this process."""
        self._send("start", test=item.nodeid, about=_about(item) if task_of(item) else None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
        task = task_of(pyfuncitem)
        if task is None:  # a gate on the repository
            return (yield)
        if task in self._endless:
            raise Failed("not run: an earlier test of this task did not end", pytrace=False)
        with recording() as seen, _time_limit(self._time_limit):
            try:
                return (yield)
            except NotImplementedError as error:
                if task_in_message(str(error)):
                    raise Unsolved(error) from None
                seen.error = error
                raise
            except TimedOut as error:
                seen.error = error
                self._endless.add(task)
                raise Failed(
                    f"the test was ended after {self._time_limit:g} seconds: is there a loop that does not end?",
                    pytrace=False,
                ) from None
            except BaseException as error:
                seen.error = error
                raise
            finally:
                pyfuncitem.stash[SEEN] = seen

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Function, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        report = yield
        if task_of(item) is None:
            return report
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, Unsolved):
            report.unsolved = error.stub
        elif report.failed and (doc := getattr(item.function, "__doc__", None)):
            report.sections.insert(0, ("this test", inspect.cleandoc(doc)))
        if call.when == "call" or report.failed:
            self._tell(item, report, error)
        if call.when == "call" and not isinstance(error, Unsolved):
            self._diagnose(item)
        return report

    def pytest_sessionfinish(self) -> None:
        named = {str(task): diagnosis.named for task, diagnosis in self._diagnoses.items()}
        self._send("end", named={task: name for task, name in named.items() if name})

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for task, diagnosis in self._diagnoses.items():
            if mistake := entry_of(task).mistake(diagnosis.named):
                terminalreporter.section(f"{task}: {mistake.id}", sep="=", yellow=True)
                terminalreporter.line(mistake.diagnosis["en"])

    def _tell(self, item: pytest.Function, report: Any, error: BaseException | None) -> None:
        outcome = "unsolved" if hasattr(report, "unsolved") else report.outcome
        about: Arguments = _about(item) | {"outcome": outcome}
        if outcome == "unsolved":
            about["stub"] = report.unsolved
        elif outcome == "failed" and error is not None:
            about["message"] = _message(error)
            about["frames"] = _frames(error, self._package)
            about["printed"] = report.capstdout[-2000:]
        self._send("result", **about)

    def _diagnose(self, item: pytest.Function) -> None:
        task = task_of(item)
        if task is None or not self._has_mistakes:
            return
        if task not in self._diagnoses:
            mistakes = {mistake.id: mistake for mistake in entry_of(task).mistakes}
            self._diagnoses[task] = Diagnosis(
                list(mistakes),
                lambda test, id: replay(test, task, mistakes[id] if id else None),
                lambda test: prepare(task, list(mistakes.values()), COMPILE_SECONDS, test),
            )
        self._diagnoses[task].add(test_of(item), item.stash[SEEN])

    def _send(self, event: str, **values: Any) -> None:
        if self._events is not None:
            os.write(self._events, json.dumps({"event": event, **values}).encode() + b"\n")


def _about(item: pytest.Item) -> Arguments:
    doc = inspect.cleandoc(getattr(item, "function", None).__doc__ or "")
    return {"test": item.name, "task": str(task_of(item)), "hidden": _is_hidden(item), "doc": doc}


def _is_hidden(item: pytest.Item) -> bool:
    return item.path.name.startswith(HIDDEN)


def _message(error: BaseException) -> str:
    """What went wrong, in the test's words, a compiler's or Python's."""
    is_told = isinstance(error, AssertionError | Failed) or _is_of_kernels(error)
    text = str(error) if is_told else "".join(traceback.format_exception_only(error)).strip()
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} ... ({len(text)} characters)"


def _frames(error: BaseException, package: str) -> list[dict[str, Any]]:
    """The part of a traceback in the package under test, innermost last."""
    if isinstance(remote := getattr(error, "frames", None), list):  # of a submission in another process
        return [{"file": file, "line": line, "function": name, "code": ""} for file, line, name in remote]
    if _is_of_kernels(error):  # where it was called from says nothing
        return []
    folder = ROOT / "src" / package
    return [
        {"file": frame.filename, "line": frame.lineno, "function": frame.name, "code": frame.line}
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(folder)
    ]


def _is_of_kernels(error: BaseException) -> bool:
    """Whether a kernel does not compile, or did what none may do."""
    return type(error).__name__ in ("CompileError", "KernelError")


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TimedOut in the block when it takes too long. Where there is no such signal, do nothing."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, _time_out)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        _end_time_limit()
        signal.signal(signal.SIGALRM, before)


def _end_time_limit() -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)


def _no_debugger(*_: Any, **__: Any) -> None:
    """Instead of a prompt that nobody would see."""
    raise RuntimeError("breakpoint() stops here only with -s at the end of the test command")


def _time_out(number: int, frame: FrameType | None) -> None:
    raise TimedOut
