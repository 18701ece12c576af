"""Finds the functions and regions of a file that are tasks, and tells which of them a learner has begun to write.

Task ids need not be in the syllabus, because the file may belong to a newer course.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ..tasks.regions import any_regions, is_native
from ..tasks.splice import parts_of_source, regions_of
from ..tasks.syllabus import TaskId, parse_task_ids
from ..tasks.task_code import Definition, Function, leading_checks, parse
from ..tasks.unsolved import is_stub, open_task

__all__ = ["tasks_by_name", "written"]


def tasks_by_name(stub: str, filename: str) -> dict[str, tuple[TaskId, ...]]:
    """Return the ids of each function that is a task, keyed by the function's qualified name. In C++ and Metal, a
    region's name is its id."""
    if is_native(filename):
        return {str(task): (task,) for task in any_regions(stub, filename)}
    return dict(_tasks_in(parse(stub, filename), "", ()))


def written(source: str, names: Collection[str], filename: str) -> list[str]:
    """Return those names whose functions or regions are no longer stubs. Raises a SpliceError if the file has a syntax
    error or faulty markers."""
    if is_native(filename):
        code_by_task = regions_of(source, filename).items()
        return [str(task) for task, code in code_by_task if str(task) in names and not open_task(code)]
    return [
        name
        for name, part in parts_of_source(source, filename).items()
        if name in names and isinstance(part.node, Function) and not _is_untouched(part.node)
    ]


def _tasks_in(
    scope: ast.Module | ast.ClassDef, prefix: str, inherited: tuple[TaskId, ...]
) -> Iterator[tuple[str, tuple[TaskId, ...]]]:
    for node in scope.body:
        if isinstance(node, Definition):
            ids = parse_task_ids(ast.get_docstring(node)) or (() if node.name.startswith("_check_") else inherited)
            if isinstance(node, ast.ClassDef):
                yield from _tasks_in(node, f"{prefix}{node.name}.", ids)
            elif ids:
                yield prefix + node.name, ids


def _is_untouched(function: Function) -> bool:
    """Tell whether a function's first statement after the checks is the stub's error."""
    start = (ast.get_docstring(function) is not None) + len(leading_checks(function))
    return is_stub(ast.Module(function.body[start : start + 1], []))
