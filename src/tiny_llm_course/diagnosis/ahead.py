"""Compiles a day's known mistakes in the background, so that a learner's first failure can be compared with them.

`compile_ahead` starts a process of low priority, which runs pytest on a few tests of the reference. After each of
these tests, a hook in this file compiles all known mistakes in the test's task. With TINY_LLM_AHEAD=off, nothing is
compiled in the background.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.places import SRC
from ..catalogue import entry_of
from ..learner.workspace import Workspace
from ..pytest_runs import test_run  # imports the module, since pytest would take `pytest_command` for a hook
from ..tasks.regions import BUILT, code_files, is_native
from ..tasks.syllabus import Day

if TYPE_CHECKING:
    import pytest

__all__ = ["compile_ahead"]

REFERENCE = SRC / "tiny_llm_ref"
NICE = ("nice", "-n", "19")  # the process gets only the processor time that other programs leave
TEST_LIMIT = 3600  # the time limit in seconds for compiling all mistakes of a task


def compile_ahead(day: Day, test: str = "") -> None:
    """Start compiling the known mistakes of a day's tasks in C++ and Metal, and return at once.

    If another process is compiling these mistakes, or has compiled them, no process is started.
    test: the name of a failed test, or "" for the first test of each task. Mistakes in Metal are compiled for the types
    with which the test calls the kernels.
    """
    workspace = Workspace()
    has_native = any(map(is_native, workspace.files(day)))
    if not has_native or not workspace.has_solutions or os.environ.get("TINY_LLM_AHEAD") == "off":
        return
    key = hashlib.sha256(test.encode()).hexdigest()[:8]
    note = REFERENCE / "kernels" / BUILT / "mistakes" / f"w{day.week}d{day.number}-{key}.ahead"
    note.parent.mkdir(parents=True, exist_ok=True)
    with note.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process holds the lock, and is compiling
            return
        file.seek(0)
        if file.read() != _digest(day):
            _start(day, test, file.fileno())  # the new process keeps the lock


def _start(day: Day, test: str, note: int) -> None:
    options = ["-p", "tiny_llm_course.diagnosis.ahead", f"--note={note}", f"--ahead={test}", "-p", "no:cacheprovider"]
    options.append(f"--time-limit={TEST_LIMIT}")
    command = [*NICE, *test_run.pytest_command([test_run.TESTS / day.test_file], REFERENCE.name, options)]
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    # not in a new session, since Linux would give a new session a full share of the processors in spite of `nice`
    subprocess.Popen(command, pass_fds=[note], **quiet)


def _digest(day: Day) -> bytes:
    """Return a digest of all files that the compiled mistakes depend on."""
    kernels = [file for folder in (REFERENCE / "kernels", Workspace().native) for file in code_files(folder)]
    catalogue = Path(__file__).parents[1] / "catalogue" / f"week_{day.week}_day_{day.number}.toml"
    digest = hashlib.sha256(os.environ.get("CXX", "").encode())
    for file in [*kernels, catalogue, test_run.TESTS / day.test_file]:
        digest.update(file.read_bytes())
    return digest.hexdigest().encode()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--note", type=int, help="descriptor of the file that says which mistakes are compiled")
    parser.addoption("--ahead", default="", help="name of a test; empty: the first of each task")


def pytest_configure(config: pytest.Config) -> None:
    os.setpgid(0, 0)  # so that Ctrl-C in the terminal does not end this process


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only the tests with the name in `--ahead`. If no name is given, keep the first test of each task in C++ or
    Metal."""
    from .mutants import is_in_kernels
    from .package_under_test import task_of

    asked = config.getoption("--ahead")
    first = {task: item for item in reversed(items) if (task := task_of(item)) and is_in_kernels(REFERENCE, task)}
    items[:] = [item for item in items if item.name == asked] if asked else first.values()


def pytest_runtest_teardown(item: pytest.Function) -> None:
    from .package_under_test import ready, task_of, test_of

    task = task_of(item)
    assert task
    mistakes = entry_of(task).mistakes
    # in reverse order, since a learner's run may be compiling the same mistakes in order
    ready(task, mistakes[::-1], None, test_of(item))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    from ..tasks.syllabus import day_of
    from .package_under_test import task_of

    if exitstatus == 0:
        task = task_of(session.items[0])
        assert task
        os.ftruncate(session.config.getoption("--note"), 0)
        os.write(session.config.getoption("--note"), _digest(day_of(task)))
