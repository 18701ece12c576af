"""The package under test, and replays of a test with another package in its place."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from ..base.places import ROOT, SHARED
from ..catalogue import Mistake
from ..tasks.syllabus import TaskId
from .mutants import compile_mistakes, done_in_time, is_in_metal, mutant_package
from .observation import Observation, observe

__all__ = ["REFERENCE", "Package", "Test", "is_replayed", "ready", "replay", "task_of", "test_of"]

Test: TypeAlias = tuple[Callable[..., Any], dict[str, Any]]  # function, arguments

REFERENCE = ROOT / "src" / "tiny_llm_ref"

_is_replayed: ContextVar[bool] = ContextVar("is_replayed", default=False)


class Package:
    """A package whose modules, such as `package.kernels.softmax`, are imported when a test first uses them.

    An error in one file therefore makes only the tests of that file fail. `package.given` and `package.native` are the
    packages that the course's packages share.
    """

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, module: str) -> ModuleType | Package:
        if module.startswith("__"):
            raise AttributeError(module)
        if module in SHARED:
            return Package(SHARED[module])
        name = f"{self._name}.{module}"
        try:
            imported = importlib.import_module(name)
            return Package(name) if hasattr(imported, "__path__") else imported
        except SyntaxError as error:  # the traceback shows only which line imported the file
            pytest.fail("".join(traceback.format_exception_only(error)), pytrace=False)


def task_of(item: pytest.Item) -> TaskId | None:
    """Return the task with which a test is marked. Return None if the test is not marked with a task."""
    mark = item.get_closest_marker("task")
    return TaskId.parse(mark.args[0]) if mark else None


def test_of(item: pytest.Function) -> Test:
    """Return a test's function and arguments, so that the test can run again later."""
    return item.obj, {name: item.funcargs[name] for name in item._fixtureinfo.argnames if name in item.funcargs}


def ready(task: TaskId, mistakes: Sequence[Mistake], seconds: float | None, test: Test) -> list[Mistake]:
    """Compile these mistakes, and return the mistakes that are compiled within `seconds`. The test can run with a
    returned mistake without waiting for a compiler.

    Mistakes in Metal are compiled by running the test, because only the test's calls determine the types to compile
    for.
    """
    if not is_in_metal(REFERENCE, task):
        return compile_mistakes(REFERENCE, task, mistakes, seconds)
    return done_in_time(lambda mistake: replay(test, task, mistake), mistakes, seconds)


def replay(test: Test, task: TaskId, mistake: Mistake | None) -> Observation:
    """Run a test with the reference as the package under test. mistake: the mistake to build in. None: no mistake."""
    function, arguments = test
    name = mutant_package(REFERENCE, task, mistake) if mistake else REFERENCE.name
    token = _is_replayed.set(True)
    try:
        return observe(function, arguments | {"impl": Package(name)})
    finally:
        _is_replayed.reset(token)


def is_replayed() -> bool:
    """Tell whether the test that runs in this thread is a replay."""
    return _is_replayed.get()
