"""Collects a learner's code for a task: the task's functions or region, and the learner's own definitions that this
code uses."""

from __future__ import annotations

import ast
from textwrap import dedent

from ..learner.workspace import Workspace
from ..tasks.regions import is_native, regions
from ..tasks.splice import code_of, definitions, excerpt
from ..tasks.syllabus import TaskId, day_of
from ..tasks.task_code import names_in, task_parts

__all__ = ["own_code"]


def own_code(workspace: Workspace, task: TaskId) -> dict[str, str]:
    """Return the learner's code for a task, keyed by path in the package: a module with the task's functions, or a
    region with its markers. Files in Python must have no syntax errors."""
    code = {}
    for file, names in workspace.parts(day_of(task), task).items():
        path = file.relative_to(workspace.package).as_posix()
        yours = file.read_text(encoding="utf-8-sig", errors="replace")
        if is_native(path):
            region = regions(yours, path).get(task, "")
            code[path] = f"// task {task} begin\n{region}// task {task} end\n" if region else ""
        else:
            code[path] = excerpt(yours, _needed(yours, workspace.stub(file), task, names))
    return {path: text for path, text in code.items() if text}


def _needed(yours: str, stub: str, task: TaskId, names: list[str]) -> set[str]:
    """Return the names of the definitions to report: the task's own definitions, given definitions that the learner
    changed, and new definitions that any of these definitions use."""
    mine, given = definitions(yours), definitions(stub)
    others = {name for of, parts in task_parts(stub).items() if of != task for name in parts}
    changed = {
        name
        for name in set(mine) & set(given) - others
        if not any(other.startswith(f"{name}.") for other in given) and code_of(yours, name) != code_of(stub, name)
    }
    needed: set[str] = set()
    reached = set(names) & set(mine) | changed
    while reached:
        needed |= reached
        used = set().union(*(names_in(ast.parse(dedent(code_of(yours, name)))) for name in reached))
        reached = {name for name in mine if name not in given and name.rpartition(".")[2] in used} - needed
    return needed
