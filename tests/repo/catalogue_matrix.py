"""A pytest plugin, `-p catalogue_matrix --matrix FILE`: runs each test of the reference with each mistake of its task.

Writes, for each mistake, which tests reject it, what it is named, and which mistakes cannot be told from it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.diagnosis import Diagnosis
from tiny_llm_course.packages import prepare, replay, task_of, test_of
from tiny_llm_course.recording import Observation

Pair = tuple[Observation, Observation]  # of two runs
Runs = dict[str, dict[str, Pair]]  # test -> mistake -> what was seen
MATRIX = pytest.StashKey[dict[str, Runs]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MATRIX] = defaultdict(dict)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    result = yield
    task, test = task_of(pyfuncitem), test_of(pyfuncitem)
    prepare(task, entry_of(task).mistakes)
    pyfuncitem.config.stash[MATRIX][str(task)][pyfuncitem.name] = {
        mistake.id: _twice(lambda mistake=mistake: replay(test, task, mistake)) for mistake in entry_of(task).mistakes
    }
    return result


def _twice(run: Callable[[], Observation]) -> Pair:
    """A mistake has to fail in the same way each time. What passes has the test's own numbers, and is not run again."""
    seen = run()
    return seen, run() if seen.failed else seen


def pytest_sessionfinish(session: pytest.Session) -> None:
    table = {
        task: {"tests": list(runs), "mistakes": _rows(runs)} for task, runs in session.config.stash[MATRIX].items()
    }
    session.config.getoption("--matrix").write_text(json.dumps(table, indent=1), encoding="utf-8")


def _rows(runs: Runs) -> dict[str, Any]:
    mistakes = list(next(iter(runs.values())))
    return {
        mistake: {
            "rejected by": [test for test, seen in runs.items() if seen[mistake][0].failed],
            "named": _named(mistake, mistakes, runs),
            "same as": [
                other
                for other in mistakes
                if other != mistake and all(seen[mistake][0].equals(seen[other][1]) for seen in runs.values())
            ],
        }
        for mistake in mistakes
    }


def _named(mistake: str, mistakes: list[str], runs: Runs) -> str | None:
    """What a learner is told who made the mistake."""
    diagnosis: Diagnosis[str] = Diagnosis(
        mistakes, lambda test, other: runs[test][other][1] if other else Observation()
    )
    for test, seen in runs.items():
        diagnosis.add(test, seen[mistake][0])
    return diagnosis.named
