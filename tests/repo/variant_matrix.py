"""A pytest plugin, `-p variant_matrix --variants FILE --failures FILE`: tests right solutions that differ.

A variant is written as a mistake of the catalogue is: edits of the reference. Writes which tests reject one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

from tiny_llm_course.catalogue import Mistake
from tiny_llm_course.mistaken import mistaken_package
from tiny_llm_course.packages import Package
from tiny_llm_course.recording import observe
from tiny_llm_course.syllabus import TaskId

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
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
    """By task."""
    found: dict[TaskId, list[Mistake]] = {}
    for entry in tomllib.loads(file.read_text(encoding="utf-8"))["variants"]:
        edits = tuple((old, new) for old, new in entry["edits"])
        found.setdefault(TaskId.parse(entry["task"]), []).append(Mistake(f"right-{entry['id']}", edits, {}))
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    result = yield
    task = TaskId.parse(pyfuncitem.get_closest_marker("task").args[0])
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for variant in variants(pyfuncitem.config.getoption("--variants")).get(task, []):
        package = Package(mistaken_package(ROOT / "src/tiny_llm_ref", task, variant))
        seen = observe(pyfuncitem.obj, arguments | {"impl": package})
        if seen.failed:
            pyfuncitem.config.stash[FAILURES][f"{task} {variant.id}"][pyfuncitem.name] = repr(seen.error)[:500]
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    table = json.dumps(session.config.stash[FAILURES], indent=1)
    session.config.getoption("--failures").write_text(table, encoding="utf-8")
