"""A small course in trees: its tests import the learner's package and no other, and wrong outcomes are rejected."""

from pathlib import Path

import pytest
import trees
from trees import Outcome

from tiny_llm_course.tasks.syllabus import select_days

DAYS = select_days("1", "1")
MESSAGE = "Week 1 Day {} Task {}: f is yours to write."

BASICS = """\
def one():
    '''Task: w1d1.1'''
    return 1


def two():
    '''Task: w1d1.2'''
    return one() + one()
"""
CONFTEST = """\
def pytest_addoption(parser):
    parser.addoption("--impl")
"""
TESTS = """\
import pytest
import tiny_llm.basics


@pytest.mark.task("w1d1.1")
def test_task_1_one():
    assert tiny_llm.basics.one() == 1


@pytest.mark.task("w1d1.2")
@pytest.mark.parametrize("x", [2])
def test_task_2_two(x):
    assert tiny_llm.basics.two() == x


@pytest.mark.task("w1d1.2")
def test_task_2_needs_the_reference():
    import tiny_llm_ref
"""
ONE = "tests/test_week_1_day_1.py::test_task_1_one"
TWO = "tests/test_week_1_day_1.py::test_task_2_two[2]"
NEEDS = "tests/test_week_1_day_1.py::test_task_2_needs_the_reference"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = {
        "src/tiny_llm_ref/__init__.py": "",
        "src/tiny_llm_ref/basics.py": BASICS,
        "tests/conftest.py": CONFTEST,
        "tests/test_week_1_day_1.py": TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['task(id)']\n",
    }
    for name, text in files.items():
        file = tmp_path / "repository" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "repository"


def first(task):
    return task.task == 1


def test_by_function(repository, tmp_path):
    trees.build_tree(tmp_path / "tree", repository, first)
    one, two, needs = trees.run_tests(tmp_path / "tree", ["test_week_1_day_1.py"])
    assert one == Outcome(ONE, ("w1d1.1",), "passed")
    assert two.tasks == ("w1d1.2",)
    assert two.message.startswith("Week 1 Day 1 Task 2: two is yours to write. ")
    assert trees.check_outcomes([one, two], first) == []
    (problem,) = trees.check_outcomes([one, two, needs], first)
    assert problem.startswith(
        f"{NEEDS}: expected failed at the stub of w1d1.2 or one before it, got failed ImportError"
    )


def test_by_file(repository, tmp_path):
    trees.build_tree(tmp_path / "tree", repository, lambda task: False)
    trees.copy_modules(tmp_path / "tree", repository, ["basics"])
    one, two, _ = trees.run_tests(tmp_path / "tree", ["test_week_1_day_1.py"])
    assert [one.outcome, two.outcome] == ["passed", "passed"]


def test_tests_that_cannot_run(repository, tmp_path):
    (repository / "tests/test_week_1_day_1.py").write_text("import nothing_of_this_name\n")
    trees.build_tree(tmp_path / "tree", repository, first)
    with pytest.raises(AssertionError, match="nothing_of_this_name"):
        trees.run_tests(tmp_path / "tree", ["test_week_1_day_1.py"])


def test_tests_of_another_package(repository, tmp_path):
    (repository / "tests/test_week_1_day_1.py").write_text("def test_task_1_x(): ...\n")
    trees.build_tree(tmp_path / "tree", repository, first)
    with pytest.raises(AssertionError, match="to be tested, got None"):
        trees.run_tests(tmp_path / "tree", ["test_week_1_day_1.py"])


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(ONE, ("w1d1.1",), "passed"),
        Outcome(TWO, ("w1d1.2",), "failed", "NotImplementedError", MESSAGE.format(1, 2)),
    ],
)
def test_expected_outcomes(outcome):
    assert trees.check_outcomes([outcome], first) == []


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(ONE, ("w1d1.1",), "failed", "AssertionError"),
        Outcome(ONE, ("w1d1.1",), "skipped", "Skipped"),
        Outcome(TWO, ("w1d1.2",), "passed"),
        Outcome(TWO, ("w1d1.2",), "skipped", "Skipped"),
        Outcome(TWO, ("w1d1.2",), "skipped", "NotImplementedError", MESSAGE.format(1, 2)),
        Outcome(TWO, ("w1d1.2",), "failed", "TypeError", MESSAGE.format(1, 2)),
        Outcome(TWO, ("w1d1.2",), "failed", "NotImplementedError", "something else"),
        Outcome(TWO, ("w1d1.2",), "failed", "NotImplementedError", MESSAGE.format(1, 1)),
        Outcome(TWO, ("w1d1.2",), "failed", "NotImplementedError", MESSAGE.format(2, 1)),
    ],
)
def test_other_outcomes_are_rejected(outcome):
    (problem,) = trees.check_outcomes([outcome], first)
    assert problem.startswith(f"{outcome.test}: ")
    assert outcome.tasks[0] in problem


def test_marks():
    assert trees.check_marks([Outcome(ONE, ("w1d1.1",), "passed"), Outcome(TWO, ("w1d1.2",), "failed")], DAYS) == []


@pytest.mark.parametrize(
    ("name", "tasks", "message"),
    [
        ("test_task_1_x", (), "expected the mark w1d1.1 and no other, got []"),
        ("test_task_1_x", ("w1d1.2",), "expected the mark w1d1.1 and no other, got ['w1d1.2']"),
        ("test_task_1_x", ("w1d1.1", "w1d1.2"), "expected the mark w1d1.1 and no other, got ['w1d1.1', 'w1d1.2']"),
        ("test_x", ("w1d1.1",), "expected test_task_N_... with a task N of its file's day"),
        ("test_task_9_x", ("w1d1.9",), "expected test_task_N_... with a task N of its file's day"),
    ],
)
def test_other_marks_are_rejected(name, tasks, message):
    test = f"tests/test_week_1_day_1.py::{name}"
    assert f"{test}: {message}" in trees.check_marks([Outcome(test, tasks, "passed")], DAYS)


def test_a_task_without_tests_is_named():
    assert trees.check_marks([Outcome(ONE, ("w1d1.1",), "passed")], DAYS) == [
        "test_week_1_day_1.py: has no test of w1d1.2"
    ]
