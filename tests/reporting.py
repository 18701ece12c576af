"""What a learner sees of failed tests: for a stub one screen, of a task the first failure, and how many more."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tiny_llm_course.syllabus import TaskId
from tiny_llm_course.unsolved import task_in_message

FAILED_TASKS = pytest.StashKey[set[str]]()


class Unsolved(pytest.fail.Exception):
    """A test ended at a stub. Without traceback: it says nothing that the message does not."""

    def __init__(self, error: NotImplementedError):
        super().__init__(f"NotImplementedError: {error}", pytrace=False)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        self.screen = [f"File: {_shortest(Path(frame.filename))}:{frame.lineno}", *str(error).split(". ")]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    try:
        return (yield)
    except NotImplementedError as error:
        if task_in_message(str(error)):
            raise Unsolved(error) from None
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Marks a stub, and what fails after a task's first failure; adds what the test is about, in its own words."""
    report = yield
    if call.excinfo and isinstance(call.excinfo.value, Unsolved):
        report.unsolved = call.excinfo.value.screen
    elif report.failed and (mark := item.get_closest_marker("task")):
        failed_before = item.session.stash.setdefault(FAILED_TASKS, set())
        report.is_repeated = mark.args[0] in failed_before and item.config.option.verbose < 0
        failed_before.add(mark.args[0])
        if doc := item.function.__doc__:
            report.sections.insert(0, ("this test", inspect.cleandoc(doc)))
    return report


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    if hasattr(report, "unsolved"):
        return "unsolved", "u", "UNSOLVED"
    if getattr(report, "is_repeated", False):
        return "more failed (-v shows all)", "F", "FAILED"
    return None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The first unsolved task of the course on one screen, and how many come after it."""
    reports = terminalreporter.stats.get("unsolved", [])
    screens = {_task(report.unsolved): report.unsolved for report in reversed(reports)}  # of a task, the first report
    if not screens:
        return
    file, what, *notes = screens[min(screens)]
    others = sorted(screens)[1:]
    later = [f"Later: {others[0].words}" + (f" and {len(others) - 1} more" if others[1:] else "")] if others else []
    terminalreporter.section("to be written", sep="=", yellow=True)
    terminalreporter.line(f"NotImplementedError: {what}.", yellow=True)
    for note in [file, *notes, *later]:
        name, _, text = note.partition(": ")
        terminalreporter.line(f"  {name + ':':9} {text}")


def _task(screen: list[str]) -> TaskId:
    task = task_in_message(screen[1])
    assert task
    return task


def _shortest(path: Path) -> Path:
    """The path from the working directory if it lies below, else the whole path."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
