"""Bars on ready-made answers: the package under test may not call an op that a task asks the learner to write.

Before the package under test is imported, each op is replaced by a function that checks the op's caller. Calls from
other code, such as MLX's own layers and the tests' oracles, are allowed. If the caller is a module without tasks, such
as one of tiny_llm_native, the function checks that module's caller instead.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import mlx.nn  # noqa: F401  loads MLX's modules, so that they can be patched

from tiny_llm_course.base.places import SHARED
from tiny_llm_course.tasks.syllabus import Task, TaskId, select_days, select_task, tasks

__all__ = ["BarredError", "during", "install"]

LIBRARIES = ("mlx_lm", "tiny_llm_ref", "transformers")
WRITTEN = {module.replace("/", ".") for day in select_days(None, None) for module in day.modules}


class BarredError(Exception):
    """An error: the code under test uses a ready-made form of what its task asks the learner to write."""


_package = ""
_task: Task | None = None


def install(package: str) -> None:
    """Replace the ops that tasks bar, and Python's import functions, by functions that check calls from `package`."""
    global _package
    if not _package:
        for name in sorted({name for task in tasks() for name in task.barred}):
            if name.partition(".")[0] not in LIBRARIES:  # for LIBRARIES, imports are barred instead
                _bar_op(name)
        builtins.__import__ = _bar_import(builtins.__import__)
        importlib.import_module = _bar_import_module(importlib.import_module)
    _package = package


@contextmanager
def during(task: TaskId | None) -> Iterator[None]:
    """Apply the bars of this task in the block. Without a task, apply none."""
    global _task
    _task = select_task(str(task)) if task else None
    yield
    _task = None


def _bar_op(name: str) -> None:
    owner_name, _, attribute = name.rpartition(".")
    owner = _find(owner_name)
    if isinstance(getattr(owner, attribute), type):
        owner, attribute = getattr(owner, attribute), "__init__"
    original = inspect.getattr_static(owner, attribute)
    function = getattr(owner, attribute)

    @functools.wraps(function)
    def barred(*args: Any, **kwargs: Any) -> Any:
        if _task and name in _task.barred and _is_tested(_behind_given(sys._getframe(1)).f_globals):
            raise BarredError(f"{name} may not be called here: {_task.id.words} asks you to write what it does")
        return function(*args, **kwargs)

    for module in [owner, *(module for key, module in list(sys.modules.items()) if key.startswith("mlx."))]:
        if inspect.getattr_static(module, attribute, None) is original:
            setattr(module, attribute, staticmethod(barred) if isinstance(original, staticmethod) else barred)


def _find(name: str) -> Any:
    """Return the module or class with this full name."""
    if name in sys.modules:
        return sys.modules[name]
    owner, _, attribute = name.rpartition(".")
    return getattr(_find(owner), attribute)


def _bar_import(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def barred(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level == 0 and globals:
            _check_import(name, globals)
        return original(name, globals, locals, fromlist, level)

    return barred


def _bar_import_module(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def barred(name: str, package: str | None = None) -> Any:
        _check_import(name, sys._getframe(1).f_globals)
        return original(name, package)

    return barred


def _check_import(name: str, caller: dict[str, Any]) -> None:
    given = caller.get("__name__") == f"{_package}.models"  # this module uses mlx_lm's tokenizer
    library = name.partition(".")[0]
    if _task and library in LIBRARIES and library != _package and _is_tested(caller) and not given:
        raise BarredError(f"{library} may not be imported here: {_task.id.words} is to be written by hand")


def _behind_given(frame: FrameType) -> FrameType:
    """Skip frames of the course's modules without tasks. Return the first other frame, from this one outwards."""
    while _is_given(str(frame.f_globals.get("__name__"))) and frame.f_back:
        frame = frame.f_back
    return frame


def _is_given(name: str) -> bool:
    package, _, module = name.partition(".")
    return package in SHARED.values() or (package == _package and module not in WRITTEN)


def _is_tested(caller: dict[str, Any]) -> bool:
    return str(caller.get("__name__")).partition(".")[0] == _package
