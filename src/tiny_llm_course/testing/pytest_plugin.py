"""The course's pytest plugin: recognises stubs, names mistakes, ends hung tests, and reports to `tiny-llm test`."""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ..base.places import ROOT
from ..catalogue import entry_of
from ..diagnosis import advice
from ..diagnosis.naming import Diagnosis
from ..diagnosis.observation import ChangedArgumentError, Observation, recording
from ..diagnosis.package_under_test import Test, ready, replay, task_of, test_of
from ..learner.workspace import Workspace
from ..pytest_runs.test_run import HIDDEN, TIME_LIMIT, Frame
from ..pytest_runs.time_limit import TimedOut, end_time_limit, leave_out_compiling, time_limit
from ..tasks.syllabus import TaskId, tasks
from ..tasks.unsolved import task_in_message

SEEN = pytest.StashKey[Observation]()

MAX_MESSAGE = 10_000  # characters
COMPILE_SECONDS = 5  # seconds for compiling mistakes in C++ or Metal; the next run reuses the compiled files
AFTER_HANG = 1.0  # the time limit in seconds for each further test of a task after one test has hung
MAX_HANGS = 3  # after this many hung tests of a task, its other tests do not run

Arguments: TypeAlias = dict[str, Any]


Failed = pytest.fail.Exception


class Unsolved(Failed):  # type: ignore[misc, valid-type]
    """The failure of a test that reached a stub. The failure has no traceback, because the message says what to write
    and where."""

    def __init__(self, error: NotImplementedError):
        super().__init__(f"NotImplementedError: {error}", pytrace=False)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        self.stub = {"file": frame.filename, "line": frame.lineno, "message": str(error)}


class Hung(Failed):  # type: ignore[misc, valid-type]
    """The failure of a test that took too long. The traceback ends at the line that was running."""


class NotRun(Failed):  # type: ignore[misc, valid-type]
    """The outcome of a test that does not run, because too many tests of its task have hung."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--events", type=int, metavar="FD", help="write events as lines of JSON to this descriptor")
    parser.addoption("--time-limit", type=float, default=TIME_LIMIT, metavar="S", help="end a test after S seconds")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Course(config), "course")


class _Course:
    """The course's pytest hooks, and their state during a run."""

    def __init__(self, config: pytest.Config):
        self._package = str(config.getoption("--impl"))
        self._events = config.getoption("--events")
        self._time_limit = float(config.getoption("--time-limit"))
        self._has_mistakes = Workspace().has_solutions and self._package == "tiny_llm"
        self._diagnoses: dict[TaskId, Diagnosis[Test]] = {}
        self._hangs: Counter[TaskId] = Counter()  # tests that took too long, per task
        leave_out_compiling(lambda file: self._send("compiling", file=file))
        if self._events is not None:
            sys.breakpointhook = _no_debugger

    def pytest_enter_pdb(self) -> None:
        end_time_limit()  # a debugging session has no time limit

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        counts = Counter(str(task) for item in items if (task := task_of(item)))
        known = {task.id for task in tasks()}
        unmarked = [item.name for item in items if _is_hidden(item) and task_of(item) not in known]
        self._send("collected", tests=dict(counts), unmarked=unmarked)  # before -k deselects some tests

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._send("chosen", tests=dict(Counter(str(task) for item in session.items if (task := task_of(item)))))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Announce a test before it runs, since the test may end this process."""
        self._send("start", test=item.nodeid, about=_about(item) if task_of(item) else None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
        task = task_of(pyfuncitem)
        if task is None:  # a test of the repository itself
            return (yield)
        if self._hangs[task] == MAX_HANGS:
            raise NotRun(f"not run: {MAX_HANGS} tests of this task did not end", pytrace=False)
        seconds = min(self._time_limit, AFTER_HANG) if self._hangs[task] else self._time_limit
        with recording() as seen:
            try:
                with time_limit(seconds):
                    return (yield)
            except NotImplementedError as error:
                if task_in_message(str(error)):
                    raise Unsolved(error) from None
                seen.error = error
                raise
            except TimedOut as error:
                seen.error = error
                self._hangs[task] += 1
                raise _hung(error, self._package) from None
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
        if call.when == "call" and not isinstance(error, Unsolved | NotRun):
            self._diagnose(item)
        return report

    def pytest_sessionfinish(self) -> None:
        named = {str(task): diagnosis.named for task, diagnosis in self._diagnoses.items() if diagnosis.named}
        left = {
            str(task): [diagnosis.left, len(entry_of(task).mistakes)] for task, diagnosis in self._diagnoses.items()
        }
        self._send("end", named=named, left=left)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for task, diagnosis in self._diagnoses.items():
            if mistake := entry_of(task).mistake(diagnosis.named):
                terminalreporter.section(f"{task}: {mistake.id}", sep="=", yellow=True)
                terminalreporter.line(mistake.diagnosis["en"])

    def _tell(self, item: pytest.Function, report: Any, error: BaseException | None) -> None:
        outcome = _OUTCOMES.get(type(error), report.outcome)
        about: Arguments = _about(item) | {"outcome": outcome}
        if outcome == "unsolved":
            about["stub"] = report.unsolved
        elif outcome == "failed" and error is not None:
            about["kind"] = _kind(error)
            about["message"] = _message(error)
            about["frames"] = _frames(error, self._package)
            about["advice"] = advice.of(error, about["frames"], about["task"])
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
                lambda test: [mistake.id for mistake in ready(task, [*mistakes.values()], COMPILE_SECONDS, test)],
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


def _hung(error: TimedOut, package: str) -> Hung:
    """Describe a test that hung, with the line that was running."""
    frames = _frames(error, package)
    loop = f"does the loop in `{frames[-1]['function']}` end?" if frames else "is there a loop that does not end?"
    text = f"the test was ended after {error}: {loop} (A slow machine may need more time: TINY_LLM_TIME_LIMIT=90)"
    hung = Hung(text, pytrace=False)
    hung.__traceback__ = error.__traceback__
    return hung


_OUTCOMES: dict[type | None, str] = {Unsolved: "unsolved", NotRun: "not run"}


def _kind(error: BaseException) -> str:
    """Return the failure's kind if the failure is worse than wrong values. Otherwise return ""."""
    return "hang" if isinstance(error, Hung) else "changed" if isinstance(error, ChangedArgumentError) else ""


def _message(error: BaseException) -> str:
    """Return an error's message, in the words of the test, the compiler or Python."""
    is_told = isinstance(error, AssertionError | Failed) or _is_of_kernels(error)
    text = str(error) if is_told else "".join(traceback.format_exception_only(error)).strip()
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} ... ({len(text)} characters)"


def _frames(error: BaseException, package: str) -> list[Frame]:
    """Return the frames of a traceback that are in the package under test, innermost last."""
    if isinstance(remote := getattr(error, "frames", None), list):  # an error of a submission's process
        return [{"file": file, "line": line, "function": name, "code": ""} for file, line, name in remote]
    if _is_of_kernels(error):  # the lines that call a kernel do not explain such an error
        return []
    folder = ROOT / "src" / package
    return [
        {"file": frame.filename, "line": frame.lineno or 0, "function": frame.name, "code": frame.line or ""}
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(folder)
    ]


def _is_of_kernels(error: BaseException) -> bool:
    """Tell whether an error says that a kernel does not compile, or did something that kernels must not do."""
    return type(error).__name__ in ("CompileError", "KernelError")


def _no_debugger(*_: Any, **__: Any) -> None:
    """Fail the test that starts a debugger, whose prompt would be invisible."""
    raise RuntimeError("breakpoint() stops here only with -s at the end of the test command")
