"""Tries an update in a copy of the clone before writing anything, to find modules that cannot be imported and tasks
that fail.

The copy's `test` command, which belongs to the newer course, judges the tasks. The results are read from the copy's
progress.txt.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..learner.progress import SOLVED, Progress
from ..learner.workspace import Workspace
from ..tasks.syllabus import TaskId, day_of, tasks

__all__ = ["Trouble", "solved_tasks", "trouble"]

PARTS = ("src", "tests", "pyproject.toml")  # the parts of the clone that tests need
LEFT_OUT = shutil.ignore_patterns("*.pyc.*", "repo", "train", "mistakes", ".*")  # *.pyc.* are still being written
NO_TESTS = 5  # exit code of `test`: the newer course has no tests for these tasks
IMPORTS = """
import importlib, json, pkgutil, sys
import tiny_llm

errors = {}
for module in pkgutil.walk_packages(tiny_llm.__path__, "tiny_llm.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
    except BaseException as error:
        errors[module.name] = f"{type(error).__name__}: {error}"
print(json.dumps(errors))
"""
SOLVE = """
import sys
from tiny_llm_course.commands import app
sys.exit(any([app(["solution", task, "--apply"], standalone_mode=False) for task in sys.argv[1:]]))
"""


@dataclass(frozen=True)
class Trouble:
    """The damage that an update would do. imports: module that could not be imported -> its error. tasks: the tasks
    whose tests would fail. told: the output of the tests."""

    imports: Mapping[str, str]
    tasks: list[TaskId]
    told: str


def solved_tasks(workspace: Workspace) -> list[TaskId]:
    return [task.id for task in tasks() if workspace.state(task.id) == SOLVED]


def trouble(
    workspace: Workspace, files: Mapping[Path, bytes | None], solved: Sequence[TaskId], open_: Sequence[TaskId] = ()
) -> Trouble | None:
    """Find the modules and tasks that work now but would not work with these files. Return None if all would still
    work.

    solved: the tasks whose tests are run. open_: tasks that would be open with these files. The reference's code for
    these tasks is put into the copy. Without the reference, only tasks before the open tasks are tried.
    """
    with _copy(workspace.root, files) as copy:
        errors = _import_errors(copy)
        if open_ and not _solve(copy, open_):
            solved = [task for task in solved if task < min(open_)]
        failed, told = _failures(copy, solved)
    if not errors and not failed:
        return None
    with _copy(workspace.root, {}) as copy:
        before = _import_errors(copy)
        failed_before, _ = _failures(copy, failed)
    errors = {name: error for name, error in errors.items() if name not in before}
    failed = [task for task in failed if task not in failed_before]
    return Trouble(errors, failed, told) if errors or failed else None


def _solve(copy: Path, chosen: Sequence[TaskId]) -> bool:
    """Put the reference's code for these tasks into the copy. Return False if the copy has no reference."""
    return _python(copy, "-c", SOLVE, *map(str, chosen)).returncode == 0


@contextmanager
def _copy(root: Path, files: Mapping[Path, bytes | None]) -> Iterator[Path]:
    """Yield a copy of the clone in which these files are changed. The copy exists while the block runs."""
    with tempfile.TemporaryDirectory(prefix="tiny-llm-update-") as folder:
        copy = Path(folder).resolve()
        for part in PARTS:
            if (root / part).is_dir():
                shutil.copytree(root / part, copy / part, ignore=LEFT_OUT)
            else:
                shutil.copy(root / part, copy / part)
        for path, content in files.items():
            target = copy / path.relative_to(root)
            if content is None:
                target.unlink(missing_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        yield copy


def _import_errors(copy: Path) -> dict[str, str]:
    """Return the errors of the learner's modules that cannot be imported, keyed by module."""
    run = _python(copy, "-c", IMPORTS)
    try:
        return dict(json.loads(run.stdout.splitlines()[-1]))
    except (ValueError, IndexError):  # the package itself cannot be imported, or ended Python
        reason = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
        return {"tiny_llm": reason}


def _failures(copy: Path, chosen: Collection[TaskId]) -> tuple[list[TaskId], str]:
    """Return the chosen tasks whose tests fail in the copy, and the output of the tests."""
    if not chosen:
        return [], ""
    progress = Progress(copy / "progress.txt")
    progress.set(dict.fromkeys(chosen, SOLVED))
    wanted = " or ".join(f"({day_of(task).test_file} and test_task_{task.task}_)" for task in chosen)
    run = _python(copy, "-m", "tiny_llm_course", "test", "-k", wanted)
    states = Progress(copy / "progress.txt")
    failed = [task for task in chosen if states.state(task) != SOLVED]
    if run.returncode not in (0, 1, NO_TESTS):  # the command ended before it ran the tests
        return list(chosen), run.stdout + run.stderr
    return failed, run.stdout


def _python(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONUTF8": "1", "TINY_LLM_AHEAD": "off"}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
