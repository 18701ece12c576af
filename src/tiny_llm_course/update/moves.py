"""Finds the tasks that a newer course has in another file. A task is identified by its id and its function, not by its
file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath
from typing import TypeAlias

from ..base.places import SHARED
from ..tasks.syllabus import TaskId
from .written import tasks_by_name

__all__ = ["heirs", "moved_tasks", "shared_places"]

Stubs: TypeAlias = Mapping[str, str]  # path in the package -> stub

RENAMED = {  # files that had other names before they left the package for tiny_llm_native
    "bridge.cpp": "mlx_extension.cpp",
    "fence.h": "redzone.h",
    "few_queries.h": "decode_attention.h",
    "interrupt.h": "race_injection.h",
    "ops.py": "fallback.py",
}


def moved_tasks(old: Stubs, new: Stubs) -> list[tuple[str, str, str]]:
    """Return the name, old path and new path of each function and region that is in another file now."""
    before, after = _places(old), _places(new)
    moved = [(key[1], before[key], after[key]) for key in before if key in after and before[key] != after[key]]
    return list(dict.fromkeys(moved))


def heirs(old: Stubs, new: Stubs) -> dict[str, str]:
    """Return the heir of each removed file, keyed by the removed file's path. The heir is the file that now has the
    largest number of the removed file's tasks, or else a new file of the same name."""
    moved = moved_tasks(old, new)
    found = {}
    for path in old.keys() - new.keys():
        counts = Counter(there for _, here, there in moved if here == path)
        namesakes = [other for other in sorted(new.keys() - old.keys()) if _name(other) == _name(path)]
        if heir := next(iter([*(other for other, _ in counts.most_common(1)), *namesakes]), None):
            found[path] = heir
    return found


def shared_places(gone: Iterable[str], theirs: Collection[str]) -> dict[str, str]:
    """Return the new paths in `src` of files that moved from the learner's package to a shared package, keyed by old
    path.

    gone: the files that the newer course no longer has in the learner's package. theirs: all paths of the newer course.
    """
    given, native = f"src/{SHARED['given']}/", f"src/{SHARED['native']}/"
    files = {f"kernels/{_name(path)}": path for path in theirs if path.startswith(native)}
    files |= {f"kernels/{old}": files[f"kernels/{new}"] for old, new in RENAMED.items() if f"kernels/{new}" in files}
    files |= {path.removeprefix(given): path for path in theirs if path.startswith(given)}
    return {name: files[name].removeprefix("src/") for name in gone if name in files}


def _places(stubs: Stubs) -> dict[tuple[TaskId, str, str], str]:
    """Return the path of each task, keyed by id, name and language, since a task may be in both C++ and Metal."""
    return {
        (task, name, PurePosixPath(path).suffix.replace(".h", ".cpp")): path
        for path, stub in stubs.items()
        for name, tasks in tasks_by_name(stub, path).items()
        for task in tasks
    }


def _name(path: str) -> str:
    return PurePosixPath(path).name
