"""A pytest plugin, `-p catalogue_matrix --matrix FILE`: runs a task's tests on each mistake made in the reference.

For each mistake, the plugin writes which tests reject it, which name the diagnosis gives it, and which mistakes cannot
be told apart from it. A test runs with a mistake only if it depends on the mistake's code. A failing test runs twice,
because it has to fail in the same way.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.diagnosis import naming
from tiny_llm_course.diagnosis.mutants import compile_mistakes
from tiny_llm_course.diagnosis.observation import Observation
from tiny_llm_course.diagnosis.package_under_test import REFERENCE, Test, replay, task_of, test_of
from tiny_llm_course.tasks.syllabus import TaskId

TESTS = pytest.StashKey[dict[TaskId, dict[str, Test]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TESTS] = {}
    naming.MAX_SECONDS = math.inf  # no learner waits here


def pytest_runtest_call(item: pytest.Function) -> None:
    if task := task_of(item):
        item.config.stash[TESTS].setdefault(task, {})[item.name] = test_of(item)


def pytest_sessionfinish(session: pytest.Session) -> None:
    table = {str(task): Matrix(task, tests).table() for task, tests in session.config.stash[TESTS].items()}
    session.config.getoption("--matrix").write_text(json.dumps(table, indent=1), encoding="utf-8")


class Matrix:
    """The mistakes and tests of a task, and the observations of the runs so far."""

    def __init__(self, task: TaskId, tests: dict[str, Test]):
        self.task, self.tests = task, tests
        self.mistakes = {mistake.id: mistake for mistake in entry_of(task).mistakes}
        self._seen: dict[tuple[str, str], tuple[Observation, Observation]] = {}

    def table(self) -> dict[str, Any]:
        compile_mistakes(REFERENCE, self.task, list(self.mistakes.values()))
        return {"tests": list(self.tests), "mistakes": {mistake: self._row(mistake) for mistake in self.mistakes}}

    def seen(self, test: str, mistake: str) -> tuple[Observation, Observation]:
        """Return the observations of two runs. A passing test observes the test's own numbers, and does not run
        again."""
        if (test, mistake) not in self._seen:
            run = replay(self.tests[test], self.task, self.mistakes[mistake])
            again = replay(self.tests[test], self.task, self.mistakes[mistake]) if run.failed else run
            self._seen[test, mistake] = run, again
        return self._seen[test, mistake]

    def _row(self, mistake: str) -> dict[str, Any]:
        self.seen(next(iter(self.tests)), mistake)  # the naive test
        named = self._named(mistake)
        same = [other for other in self.mistakes if other != mistake and self._are_same(mistake, other)]
        rejecting = [
            test for test in self.tests if (test, mistake) in self._seen and self._seen[test, mistake][0].failed
        ]
        return {"rejected by": rejecting, "named": named, "same as": same}

    def _named(self, mistake: str) -> str | None:
        """Return what a learner who made this mistake is told. Skip tests that can no longer change the answer."""
        told: naming.Diagnosis[str] = naming.Diagnosis(
            list(self.mistakes), lambda test, other: self.seen(test, other)[1] if other else Observation()
        )
        for test in self.tests:
            told.add(test, self.seen(test, mistake)[0])
            if told.named is not None:
                break
        return told.named

    def _are_same(self, mistake: str, other: str) -> bool:
        known = [test for test in self.tests if self._is_seen(test, mistake) and self._is_seen(test, other)]
        ordered = [*known, *(test for test in self.tests if test not in known)]  # one known difference is enough
        return all(self.seen(test, mistake)[0].equals(self.seen(test, other)[1]) for test in ordered)

    def _is_seen(self, test: str, mistake: str) -> bool:
        return (test, mistake) in self._seen
