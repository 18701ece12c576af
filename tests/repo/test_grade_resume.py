"""An interrupted `tiny-llm grade` goes on where it stopped, and grades changed submissions again."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from handed_in import ENVIRONMENT, RIGHT, at_call, grade, package, write
from waiting import restore_ctrl_c

from tiny_llm_course.grading import kept_grades as module
from tiny_llm_course.grading.grades import FAILED, SOLVED, Grade, GradingLimits, TaskGrade, _is_final
from tiny_llm_course.grading.kept_grades import DAYS, KeptGrades
from tiny_llm_course.grading.remote import GoneError
from tiny_llm_course.grading.submissions import Submission
from tiny_llm_course.pytest_runs.test_run import PytestRun, Result
from tiny_llm_course.tasks.syllabus import TaskId, select_days
from tiny_llm_course.testing.pytest_plugin import _message

DAY = ["--week", "1", "--day", "4"]
ANN = Submission("ann", {"layer_norm.py": b"x = 1\n"})
GRADE = Grade("ann", (TaskGrade(TaskId(1, 4, 1), 9, 9, SOLVED), TaskGrade(TaskId(1, 4, 2), 0, 0, FAILED)), "slow", 2.5)


def test_the_same_command_grades_the_rest(tmp_path):
    """When Ctrl-C comes, two of three submissions are finished. Then one of these two changes."""
    folder, mine = tmp_path / "class", f"# {tmp_path}\n"  # which no earlier run of this test has graded
    package(folder / "ann", layer_norm=RIGHT + mine)
    package(folder / "bob", layer_norm=RIGHT + mine)
    package(folder / "eve", layer_norm=at_call("while True: pass") + mine)
    command = [sys.executable, "-m", "tiny_llm_course", "grade", str(folder), *DAY, "--jobs", "1", "--patience", "60"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=ENVIRONMENT, preexec_fn=restore_ctrl_c, **pipes) as process:
        assert [process.stdout.readline().split()[-1] for _ in range(2)] == ["ann", "bob"]
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=600)
    assert (process.returncode, output) == (130, "")
    assert errors.startswith("2 of 3 submissions are graded, and their grades are kept.")

    (folder / "bob" / "layer_norm.py").write_text(RIGHT.replace("* self.weight", "") + mine)
    (folder / "eve" / "layer_norm.py").write_text(RIGHT + mine + mine)
    again = [*DAY, "--patience", "60", "--format", "json"]
    result = grade(folder, *again, fresh=False)
    assert result.stderr.startswith("1 of 3 grades are from an earlier run")
    points = {entry["name"]: entry["points"] for entry in json.loads(result.stdout)["grades"]}
    assert points == {"ann": 1, "bob": 0, "eve": 1}
    assert grade(folder, *again, fresh=False).stderr.startswith("3 of 3 grades")


# ------------------------------------------------------------------------------------------------------------- kept


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Return a small course."""
    for name in ("tests/test_week_1_day_4.py", "src/tiny_llm_ref/layer_norm.py", "tests/repo/gates.py"):
        write(tmp_path / name, "x = 1\n")
    write(tmp_path / "pyproject.toml", "")
    write(tmp_path / "hidden" / "extra.py", "y = 1\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "SRC", tmp_path / "src")
    return tmp_path


def kept(course, week="1", day="4", hidden=None, limits=None):
    return KeptGrades(course / "grades", select_days(week, day), hidden, limits or GradingLimits())


def test_a_grade_is_found_again_whoever_hands_in(course):
    kept(course).add(ANN, GRADE)
    others = [Submission("bob", ANN.files), Submission("eve", {"layer_norm.py": b"x = 2\n"})]
    assert kept(course).find([ANN, *others]) == {"ann": GRADE, "bob": Grade("bob", *list(vars(GRADE).values())[1:])}


CHANGES = {
    "a test": lambda course: write(course / "tests" / "test_week_1_day_4.py", "x = 2\n"),
    "a new test": lambda course: write(course / "tests" / "helpers.py", ""),
    "the reference": lambda course: write(course / "src/tiny_llm_ref/layer_norm.py", "x = 2\n"),
    "the configuration": lambda course: write(course / "pyproject.toml", "x = 1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_grade_is_found_after_a_change(course, change):
    kept(course).add(ANN, GRADE)
    CHANGES[change](course)
    assert not kept(course).find([ANN])


def test_other_questions_have_other_answers(course, monkeypatch):
    hidden = course / "hidden"
    kept(course).add(ANN, GRADE)
    assert not kept(course, day="5").find([ANN])
    assert not kept(course, limits=GradingLimits(patience=11)).find([ANN])
    assert not kept(course, limits=GradingLimits(sandbox="bubblewrap")).find([ANN])
    assert not kept(course, hidden=hidden).find([ANN])
    kept(course, hidden=hidden).add(ANN, GRADE)
    write(hidden / "extra.py", "y = 2\n")
    assert not kept(course, hidden=hidden).find([ANN])
    with monkeypatch.context() as other:
        other.setenv("CXX", "clang++")
        assert not kept(course).find([ANN])
    noted = Submission("ann", ANN.files, note="left out: x.zip")
    assert not kept(course).find([noted])


def test_what_decides_no_grade_may_change(course):
    kept(course).add(ANN, GRADE)
    write(course / "tests" / "repo" / "gates.py", "x = 2\n")
    write(course / "src" / "tiny_llm" / "layer_norm.py", "mine = 1\n")
    assert kept(course).find([ANN])


def test_only_finished_grades_are_kept(course):
    untested = Grade("ann", (TaskGrade(TaskId(1, 4, 1), 0, 0, FAILED),), "could not be graded: OSError: disk full")
    kept(course).add(ANN, untested)
    assert not kept(course).find([ANN])
    assert not kept(course).find([Submission("ann", problem="no package")])


def test_a_grade_that_is_not_final_is_not_kept(course):
    kept(course).add(ANN, replace(GRADE, is_final=False))
    assert not kept(course).find([ANN])


TROUBLE = [
    GoneError("the process for the submission did not start"),
    GoneError("no answer within 10 seconds"),
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
    MemoryError(),
]


@pytest.mark.parametrize("error", TROUBLE, ids=str)
def test_no_grade_is_final_if_the_machine_may_be_at_fault(error):
    assert not _is_final(run_with(error))


def test_other_grades_are_final():
    assert _is_final(run_with(AssertionError("values differ: got 1, expected 2")))
    assert _is_final(run_with(PermissionError("a submission may not read /etc/passwd")))
    assert not _is_final(PytestRun(problem="ended because all tests together took too long"))


def run_with(error):
    """Return a run in which a test ended with this error."""
    return PytestRun(results=[Result("test_task_1", TaskId(1, 4, 1), "failed", message=_message(error))])


def test_a_lock_of_a_submission_keeps_nobody_waiting(course):
    """Any process that can read a file can lock it."""
    kept(course).add(ANN, GRADE)
    files = [*(course / "grades").iterdir(), *course.glob("*.lock")]
    for file in files:
        fcntl.flock(os.open(file, os.O_RDONLY), fcntl.LOCK_EX)
    kept(course).add(ANN, GRADE)
    assert kept(course).find([ANN]) == {"ann": GRADE}


def test_a_grade_counts_where_it_cannot_be_marked_as_used(course, monkeypatch):
    """The disk is read-only."""
    kept(course).add(ANN, GRADE)

    def touch(file):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "touch", touch)
    assert kept(course).find([ANN])


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "ann"}', '{"name": 1, "tasks": []}'])
def test_a_damaged_file_counts_as_none(course, content):
    kept(course).add(ANN, GRADE)
    [file] = (course / "grades").iterdir()
    file.write_text(content)
    assert not kept(course).find([ANN])


def test_a_folder_that_cannot_be_written_ends_nothing(course):
    write(course / "grades", "no folder")
    some = kept(course)
    assert isinstance(some.add(ANN, GRADE), OSError)
    assert not some.find([ANN])


def test_grades_are_deleted_once_nobody_asks_for_them(course):
    old, new = kept(course), kept(course, day="5")
    old.add(ANN, GRADE)
    [file] = (course / "grades").iterdir()
    new.add(ANN, GRADE)
    age(file, DAYS + 1)
    old.prune()
    assert not old.find([ANN])
    assert new.find([ANN])


def age(file, days):
    os.utime(file, times=(file.stat().st_atime, file.stat().st_mtime - days * 24 * 3600))


def test_real_files_of_the_course_count():
    """These files are the tests of all days, and the code that grades."""
    files = set(module._files(None))
    root = Path(__file__).resolve().parents[2]
    for name in ("tests/test_week_3_day_7.py", "tests/helpers.py", "src/tiny_llm_course/grading/worker.py"):
        assert root / name in files
    assert Path(__file__).resolve() not in files
