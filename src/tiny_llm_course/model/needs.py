"""Lists the tasks whose code a command runs. If one of these tasks is open, the command reports the task as missing, or
as filled in."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib import import_module
from pathlib import Path

from ..tasks.syllabus import Day, TaskId, select_days
from ..tasks.unsolved import Stub, unsolved

__all__ = ["has_cache", "is_written", "needs_of_serving", "needs_of_text", "open_stubs"]

_LOOP = TaskId(1, 6, 1)  # the generation loop without a cache
_SAMPLING = 7  # day of week 1
_CACHE, _QUANTISED, _KERNELS = 1, 3, (4, 5, 6, 7)  # days of week 2
_AHEAD = TaskId(2, 1, 4)  # asynchronous decoding, which no command needs
_METAL = {  # tasks that no command needs, because the CPU's kernels replace missing code
    TaskId(2, day, task) for day, task in ((2, 5), (4, 4), (5, 4), (5, 5), (5, 6), (6, 3), (7, 4), (7, 5))
} | {TaskId(3, 4, 3)}
_MEASURING = TaskId(3, 2, 2)  # measures how long requests wait; only tests and experiments need this task
_SAMPLING_AT_ONCE = TaskId(3, 2, 3)  # optional: without this task, requests are sampled one after the other


def has_cache(stubs: Iterable[Stub]) -> bool:
    """Tell whether text is generated with a KV cache as long as these stubs are left."""
    return not any((stub.task.week, stub.task.day) == (2, _CACHE) and stub.task != _AHEAD for stub in stubs)


def needs_of_text(is_quantised: bool, layers: str, is_greedy: bool, is_cached: bool) -> set[TaskId]:
    """Return the tasks whose code `main` and `chat` run.

    is_greedy: whether each token is the likeliest one. Greedy decoding needs no sampler. is_cached: whether the loop
    has a KV cache. Without a cache, week 1's loop runs.
    """
    days = select_days("1", None)[: -1 if is_greedy else None]
    week_2 = {_CACHE} if is_cached else set()
    needed = _tasks([*days, *_week_2(is_quantised, layers, week_2)])
    return needed - {_LOOP} if is_cached else needed


def needs_of_serving(is_quantised: bool, layers: str, days: Collection[int]) -> set[TaskId]:
    """Return the tasks whose code `batch` and `serve` run. days: the days of week 3 whose code runs."""
    week_3 = [day for day in select_days("3", None) if day.number in days]
    return _tasks([*select_days("1", None), *_week_2(is_quantised, layers, set()), *week_3]) - {_LOOP}


def _week_2(is_quantised: bool, layers: str, days: set[int]) -> list[Day]:
    if is_quantised or layers in ("kernels", "tuned"):
        days = days | {_QUANTISED}
    if layers == "kernels":
        days = days | {*_KERNELS}
    return [day for day in select_days("2", None) if day.number in days]


def _tasks(days: list[Day]) -> set[TaskId]:
    return {task.id for day in days for task in day.tasks} - _METAL - {_AHEAD, _MEASURING, _SAMPLING_AT_ONCE}


def is_written(kernel: str, stubs: list[Stub]) -> bool:
    """Tell whether a kernel is written, that is, whether neither its file nor a header that it includes has a stub. A
    stub in Metal does not count, because the CPU's kernel runs instead."""
    from tiny_llm_native.includes import with_included

    files = {stub.file for stub in stubs if stub.file.parent.name == "kernels" and stub.file.suffix != ".metal"}
    sources = {file.with_name(f"{kernel}.cpp") for file in files}
    parts = {part for source in sources if source.exists() for part in with_included(source)}
    return not any(file.stem == kernel or file in parts for file in files)


def open_stubs(package: str) -> list[Stub]:
    """Return the stubs that a learner still has to replace. The reference has no stubs."""
    return [] if package == "tiny_llm_ref" else unsolved(Path(import_module(package).__file__ or "").parent)
