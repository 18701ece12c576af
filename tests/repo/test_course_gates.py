"""Rules for the course in the repository. test_gates.py and test_trees.py show that each of these checks can fail.

A tree runs the tests of its day and of the next day. With `./course check --all`, it runs the tests of every day.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import gates
import pytest
import trees
import verdicts

from tiny_llm_course.tasks.regions import code_files
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_course.tasks.syllabus import Day, TaskId, select_days

REPOSITORY = Path(__file__).parents[2]
REFERENCE = REPOSITORY / "src/tiny_llm_ref"
DAYS = select_days(None, None)
STATIC_GATES = [gates.check_exports, gates.check_definitions_only, gates.check_sizes]

each_day = pytest.mark.parametrize("day", DAYS, ids=lambda day: f"week_{day.week}_day_{day.number}")
PATIENCE = "--time-limit=600"  # a busy machine decides nothing


def up_to(last: Day) -> Callable[[TaskId], bool]:
    return lambda task: (task.week, task.day) <= (last.week, last.number)


def nothing(task: TaskId) -> bool:
    return False


def show(problems: list[str]) -> str:
    more = [f"and {len(problems) - 20} more"] if len(problems) > 20 else []
    return "\n".join(["", *problems[:20], *more])


def files_of(days: list[Day]) -> list[str]:
    return [day.test_file for day in days]


@pytest.mark.parametrize("package", gates.LAYERS)
def test_modules_import_what_is_above_them(package):
    problems = gates.check_imports(gates.read_sources(REPOSITORY / "src" / package), package)
    assert not problems, show(problems)


@pytest.mark.parametrize("package", gates.LAYERS)
@pytest.mark.parametrize("check", STATIC_GATES)
def test_modules(check, package):
    problems = check(gates.read_sources(REPOSITORY / "src" / package))
    assert not problems, show(problems)


def test_long_files_are_named():
    """This is a warning, because a long file may still contain one idea."""
    for folder in (REPOSITORY / "src").glob("*/"):
        sources = gates.read_sources(folder) | gates.read_native(folder)
        for problem in gates.long_files(sources):
            warnings.warn(f"{folder.name}/{problem}", stacklevel=1)


@pytest.mark.parametrize("package", ["tiny_llm_given", "tiny_llm_native"])
def test_what_both_packages_share_has_no_task(package):
    files = code_files(REPOSITORY / "src" / package)
    assert files
    for file in files:
        source = file.read_text(encoding="utf-8")
        assert make_stub(source, filename=file.name) == source, file


def test_docstrings_and_syllabus_agree():
    problems = gates.check_task_ids(gates.read_sources(REFERENCE), DAYS, gates.read_native(REFERENCE))
    assert not problems, show(problems)


def test_every_test_has_its_mark_and_stops_at_a_stub(tmp_path):
    """The test runs in a tree in which no task is solved."""
    trees.build_tree(tmp_path, REPOSITORY, nothing)
    outcomes = trees.run_tests(tmp_path, files_of(DAYS), PATIENCE)
    problems = trees.check_marks(outcomes, DAYS)
    assert not problems, show(problems)
    problems = trees.check_outcomes(outcomes, nothing)
    assert not problems, show(problems)


@each_day
def test_solved_by_function(day, tmp_path):
    """If all tasks up to a day are solved, the day's tests pass, and the next day's tests stop at their stubs."""
    place = DAYS.index(day)
    tested = DAYS if verdicts.ALL else DAYS[place : place + 2]
    trees.build_tree(tmp_path, REPOSITORY, up_to(day))
    problems = trees.check_outcomes(trees.run_tests(tmp_path, files_of(tested), PATIENCE), up_to(day))
    assert not problems, show(problems)


@each_day
def test_copied_by_file(day, tmp_path):
    """If a day's files are copied onto the solution of the days before it, the day's tests pass.

    If this gives the same code as solving the day's tasks, test_solved_by_function has run the tests.
    """
    place = DAYS.index(day)
    earlier = DAYS[:place]
    copied, solved = tmp_path / "copied", tmp_path / "solved"
    trees.build_tree(copied, REPOSITORY, up_to(earlier[-1]) if earlier else nothing)
    trees.copy_modules(copied, REPOSITORY, list(day.modules))
    trees.build_tree(solved, REPOSITORY, up_to(day))
    if trees.code_of(copied) == trees.code_of(solved) and not verdicts.ALL:
        return
    tested = DAYS[: place + 1] if verdicts.ALL else [day]
    problems = trees.check_outcomes(trees.run_tests(copied, files_of(tested), PATIENCE), up_to(day))
    assert not problems, show(problems)
