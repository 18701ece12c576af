"""What a learner sees of a failed test: for a stub one screen, not a page of traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tiny_llm_course.unsolved import task_in_message

Report = pytest.TestReport | pytest.CollectReport


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, NotImplementedError) and task_in_message(str(error)):
        place = call.excinfo.traceback[-1]
        report.unsolved = str(error)
        report.place = f"{_shortest(Path(place.path))}:{place.lineno + 1}"
        report.longrepr = f"NotImplementedError: {error}"
    return report


def pytest_report_teststatus(report: Report) -> tuple[str, str, str] | None:
    return ("unsolved", "u", "UNSOLVED") if getattr(report, "unsolved", None) else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = terminalreporter.stats.get("unsolved", [])
    if not reports:
        return
    by_task = {task_in_message(report.unsolved): report for report in reversed(reports)}
    first, *later = sorted(by_task)
    report = by_task[first]
    what, *notes = report.unsolved.split(". ")
    terminalreporter.section("to be written", sep="=", yellow=True)
    terminalreporter.line(f"NotImplementedError: {what}.", yellow=True)
    for note in [f"File: {report.place}", *notes]:
        name, _, value = note.partition(": ")
        terminalreporter.line(f"  {name + ':':9} {value}")
    if later:
        terminalreporter.line(f"  Later:    {', '.join(task.words for task in later)}")


def _shortest(path: Path) -> Path:
    """The path from the working directory if it lies below, else the whole path."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
