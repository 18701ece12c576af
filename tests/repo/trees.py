"""The course in temporary trees, solved up to some task: the outcomes of its tests, and the expected outcomes.

A tree contains the tests and the learner's package. Its tests cannot import the reference.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tiny_llm_course.tasks.regions import BUILT, code_files
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_course.tasks.syllabus import Day, TaskId
from tiny_llm_course.tasks.unsolved import task_in_message

__all__ = [
    "QUICKER",
    "UNFINISHED",
    "Outcome",
    "build_tree",
    "check_marks",
    "check_outcomes",
    "code_of",
    "copy_modules",
    "run_tests",
]

# Options of pytest, without plugins that no day test needs.
QUICKER = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:xdist"]
# Bytecode that another process is still writing. Finished bytecode is copied, because that saves compiling.
UNFINISHED = ("*.pyc.*",)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test, or of its setup or teardown if that failed."""

    test: str  # pytest's node id
    tasks: tuple[str, ...]  # the tasks of its marks
    outcome: str  # passed, failed or skipped
    error: str = ""  # the exception's type
    message: str = ""


def build_tree(root: Path, repository: Path, is_solved: Callable[[TaskId], bool]) -> None:
    """Make a tree in which the learner has solved some tasks function by function."""
    reference = repository / "src/tiny_llm_ref"
    for file in code_files(reference):
        target = root / "src/tiny_llm" / file.relative_to(reference)
        target.parent.mkdir(parents=True, exist_ok=True)
        stub = make_stub(file.read_text(encoding="utf-8"), is_solved=is_solved, filename=file.name)
        target.write_text(stub, encoding="utf-8")
    _share_built(reference, root / "src/tiny_llm")
    absent = root / "src/tiny_llm_ref/__init__.py"
    absent.parent.mkdir()
    absent.write_text("raise ImportError('the learner\\'s package needs the reference')\n", encoding="utf-8")
    shutil.copytree(repository / "tests", root / "tests", ignore=shutil.ignore_patterns("repo", *UNFINISHED))
    shutil.copy(repository / "pyproject.toml", root)


def _share_built(reference: Path, package: Path) -> None:
    """Share compiled kernels, so that an unchanged kernel is not compiled again."""
    for file in (reference / "kernels" / BUILT).glob("*.*"):
        if file.is_file():
            (package / "kernels" / BUILT).mkdir(exist_ok=True)
            shutil.copy2(file, package / "kernels" / BUILT)


def copy_modules(root: Path, repository: Path, modules: list[str]) -> None:
    """Copy files as the chapters say: `cp src/tiny_llm_ref/attention.py src/tiny_llm/attention.py`."""
    for module in modules:
        for file in (repository / "src/tiny_llm_ref").glob(f"{module}.*"):
            shutil.copy(file, root / "src/tiny_llm" / f"{module}{file.suffix}")


def code_of(root: Path) -> dict[Path, bytes]:
    """Return the content of the learner's files in a tree."""
    package = root / "src/tiny_llm"
    return {file.relative_to(package): file.read_bytes() for file in code_files(package)}


def run_tests(root: Path, files: list[str], *options: str) -> list[Outcome]:
    """Run test files of a tree on the learner's package. options: options of pytest."""
    log = root / "outcomes.json"
    command = [sys.executable, "-m", "pytest", *(f"tests/{file}" for file in files), "--impl=tiny_llm", "-q", *options]
    command += [f"--rootdir={root}", *QUICKER, "-p", "outcome_log", f"--outcomes={log}"]
    path = os.pathsep.join([str(root / "src"), str(Path(__file__).parent)])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        command, cwd=root, env=environment | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if run.returncode not in (0, 1):
        raise AssertionError(f"the tests could not be run:\n{run.stdout[-4000:]}{run.stderr[-4000:]}")
    found = json.loads(log.read_text(encoding="utf-8"))
    if not Path(found["package"] or "").is_relative_to(root / "src"):
        raise AssertionError(f"expected the package in {root / 'src'} to be tested, got {found['package']}")
    return [Outcome(**outcome | {"tasks": tuple(outcome["tasks"])}) for outcome in found["outcomes"]]


def check_outcomes(outcomes: list[Outcome], is_solved: Callable[[TaskId], bool]) -> list[str]:
    """Check that the tests of solved tasks pass, and all others fail at a stub of their task or of an unsolved earlier
    task."""
    problems = []
    for outcome in outcomes:
        task = TaskId.parse(outcome.tasks[0])
        got = f"{outcome.outcome} {outcome.error} {outcome.message}".strip().partition("\n")[0]
        stub = task_in_message(outcome.message) if outcome.error == "NotImplementedError" else None
        if is_solved(task):
            if outcome.outcome != "passed":
                problems.append(f"{outcome.test}: {task} is solved, expected passed, got {got}")
        elif outcome.outcome != "failed" or stub is None or stub > task or is_solved(stub):
            problems.append(f"{outcome.test}: expected failed at the stub of {task} or one before it, got {got}")
    return problems


def check_marks(outcomes: list[Outcome], days: list[Day]) -> list[str]:
    """Check that each test has exactly the mark that its file's name and its own name give, and each task has tests."""
    tasks = {str(task.id): day for day in days for task in day.tasks}
    problems = [
        f"{day.test_file}: has no test of {task}"
        for task, day in tasks.items()
        if not any(task in outcome.tasks for outcome in outcomes)
    ]
    for outcome in outcomes:
        name = re.search(r"test_week_(\d+)_day_(\d+)\.py::(?:\w+::)?test_task_(\d+)_", outcome.test)
        expected = "w{}d{}.{}".format(*name.groups()) if name else None
        if expected not in tasks:
            problems.append(f"{outcome.test}: expected test_task_N_... with a task N of its file's day")
        elif outcome.tasks != (expected,):
            problems.append(f"{outcome.test}: expected the mark {expected} and no other, got {list(outcome.tasks)}")
    return problems
