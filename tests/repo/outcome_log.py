"""A pytest plugin, `-p outcome_log --outcomes FILE`: writes the package under test and the outcome of each test."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

OUTCOMES = pytest.StashKey[list[dict[str, Any]]]()
RAISED = pytest.StashKey[BaseException]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OUTCOMES] = []


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Keep the exception that a test raised, before the course's own reporting replaces it."""
    try:
        return (yield)
    except BaseException as error:
        pyfuncitem.stash[RAISED] = error
        raise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" or report.outcome != "passed":
        error = call.excinfo.value if call.excinfo else None
        if call.when == "call":
            error = item.stash.get(RAISED, error)
        outcome = {
            "test": item.nodeid,
            "tasks": [task for mark in item.iter_markers("task") for task in mark.args],
            "outcome": report.outcome,
            "error": type(error).__name__ if error else "",
            "message": str(error) if error else "",
        }
        item.config.stash[OUTCOMES].append(outcome)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    package = getattr(sys.modules.get("tiny_llm"), "__file__", None)
    log = {"package": package, "outcomes": session.config.stash[OUTCOMES]}
    session.config.getoption("--outcomes").write_text(json.dumps(log), encoding="utf-8")
