"""A pytest plugin, `-p variant_matrix --variants FILE --failures FILE`: runs tests on right solutions that differ.

A variant is written like a mistake of the catalogue: as edits of the reference. Writes which tests reject a variant.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

from tiny_llm_course.catalogue import Mistake
from tiny_llm_course.diagnosis.mutants import compile_mistakes
from tiny_llm_course.diagnosis.package_under_test import REFERENCE, replay, task_of, test_of
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_course.tasks.toml import read_toml

FAILURES = pytest.StashKey[dict[str, dict[str, str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--variants", type=Path)
    parser.addoption("--failures", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FAILURES] = {
        f"{task} {v.id}": {} for task, all_ in variants(config.getoption("--variants")).items() for v in all_
    }


@cache
def variants(file: Path) -> dict[TaskId, list[Mistake]]:
    """Return the variants, keyed by task."""
    found: dict[TaskId, list[Mistake]] = {}
    for entry in read_toml(file)["variants"]:
        edits = tuple((old, new) for old, new in entry["edits"])
        found.setdefault(TaskId.parse(entry["task"]), []).append(Mistake(f"right-{entry['id']}", edits, {}))
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    result = yield
    task = task_of(pyfuncitem)
    written = variants(pyfuncitem.config.getoption("--variants")).get(task, [])
    compile_mistakes(REFERENCE, task, written)
    for variant in written:
        seen = replay(test_of(pyfuncitem), task, variant)
        if seen.failed:
            pyfuncitem.config.stash[FAILURES][f"{task} {variant.id}"][pyfuncitem.name] = repr(seen.error)[:500]
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    table = json.dumps(session.config.stash[FAILURES], indent=1)
    session.config.getoption("--failures").write_text(table, encoding="utf-8")
