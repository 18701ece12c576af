"""The formats of `tiny-llm grade`: each is valid for its readers, whatever a submission's name and output are."""

import json
import os
import subprocess
import sys
import zipfile

import pytest
from grade_schemas import (
    check_classroom,
    check_csv,
    check_exercism,
    check_gradescope,
    check_json,
    check_junit,
    check_text,
)
from handed_in import ENVIRONMENT, REFERENCE, RIGHT, at_call, grade, package, stub

from tiny_llm_course.grading.formats import EACH, TOGETHER, from_json
from tiny_llm_course.grading.grades import FAILED, SOLVED, UNSOLVED, Grade, TaskGrade
from tiny_llm_course.grading.html_report import html_report
from tiny_llm_course.grading.protection import protection, told
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_course.ui.language import Messages
from tiny_llm_course.ui.terminal import signs

DAY = ["--week", "1", "--day", "4"]
CHECKS = {"gradescope": check_gradescope, "classroom": check_classroom, "exercism": check_exercism}
MISTAKE = RIGHT.replace("* self.weight", "")
# The text of a submission's error: lone surrogates, control characters, ends of XML, HTML and CSV, GitHub's commands.
SAYS = (
    "\udce9 \ud800 \x00 \x07 \x1b[2J \x9b \uffff \u202e ]]> --> </failure> <b>&amp; \" '\r\n"
    "=cmd()\r::error title=Points::19/19\n   ::stop-commands::x\n##[error]x\n\x85 \u2028 田中"
)


@pytest.fixture(scope="module")
def submitted(tmp_path_factory):
    """Write submissions in folders, in ZIP files and under odd names."""
    folder = tmp_path_factory.mktemp("submitted")
    package(folder / "ann" / "src" / "tiny_llm", layer_norm=RIGHT)
    package(folder / "bob", layer_norm=MISTAKE, basics=stub("basics.py"))
    package(folder / "=cmd()" / "tiny_llm", layer_norm=stub("layer_norm.py"))
    package(folder / "empty", notes="")
    package(folder / "says", layer_norm=at_call(f"raise ValueError({SAYS!a} + 'é' * 70_000)"))
    package(folder / "a\n  2 of 2  mallory", layer_norm="def broken(:\n")
    if sys.platform != "darwin":  # whose names are always UTF-8
        (folder / os.fsdecode(b"caf\xe9")).mkdir()
    with zipfile.ZipFile(folder / 'eve, "q" 田中.zip', "w") as archive:
        archive.writestr("homework-main/src/tiny_llm/layer_norm.py", RIGHT)
        archive.writestr(f"homework-main/src/tiny_llm/{'a' * 300}.py", "")
    (folder / "broken.zip").write_bytes(b"PK\x03\x04 no archive")
    (folder / "outside").mkdir()
    (folder / "outside" / "layer_norm.py").symlink_to(REFERENCE / "layer_norm.py")
    return folder


POINTS = {"ann": "1", "bob": "0", "'=cmd()": "0", "empty": "0", "says": "0", r"a\n  2 of 2  mallory": "0"}
POINTS |= {'eve, "q" 田中': "0", "broken": "0", "outside": "0"} | (
    {} if sys.platform == "darwin" else {r"caf\xe9": "0"}
)


@pytest.fixture(scope="module")
def grades(submitted):
    """Grade all submissions. Each format shows these grades."""
    return graded_as_json(submitted)


def graded_as_json(*arguments, **options):
    result = grade(*arguments, *DAY, "--format", "json", **options)
    assert result.returncode == 0, result.stderr
    check_json(result.stdout)
    return from_json(result.stdout)


@pytest.fixture(scope="module")
def written(submitted, grades, tmp_path_factory):
    """Return the file or folder that the command writes in each format, keyed by format."""
    folder, texts = tmp_path_factory.mktemp("written"), {}
    for form in (*TOGETHER, *EACH):
        run = grade(submitted, *DAY, "--format", form, "--out", folder / form, fresh=False)
        assert run.returncode == 0, run.stderr
        tested = sum(any(task.total for task in one.tasks) for one in grades)
        assert run.stderr.startswith(f"{tested} of {len(grades)} grades are from an earlier run")
        files = [folder / form] if form in TOGETHER else (folder / form).iterdir()
        texts[form] = {file.stem: file.read_bytes().decode() for file in files}
    return texts


def shown(form, grades, name):
    """Return this submission's file in a format that writes one file per submission."""
    [one] = [one for one in grades if one.name == name]
    return CHECKS[form](json.dumps(EACH[form](one), ensure_ascii=False))


# ------------------------------------------------------------------------------------------------------------ valid


def test_the_table_has_a_line_for_each_submission(written, grades):
    text = written["table"]["table"]
    check_text(text)
    *rows, legend, protection = text.splitlines()
    assert [row.split("  ")[2] for row in map(str.strip, rows)] == [one.name.split("  ")[0] for one in grades]
    assert legend.startswith(signs().solved)
    assert protection == told()


def test_csv_is_quoted_and_cannot_compute(written):
    row = {row["submission"]: row for row in check_csv(written["csv"]["csv"])}
    assert {name: one["points"] for name, one in row.items()} == POINTS
    assert (row["ann"]["w1d4.1"], row["ann"]["w1d4.2"]) == ("1", "0")
    assert row["bob"]["mistakes"].startswith("w1d4.1:")
    assert (row["ann"]["protection"], row["broken"]["protection"]) == (protection().sandbox, "")
    assert "cannot be read" in row["broken"]["problem"]
    assert "could not be graded: OSError: [Errno 36] File name too long" in row['eve, "q" 田中']["problem"]
    assert "expected a package tiny_llm, found none" in row["empty"]["problem"]


def test_junit(written):
    root = check_junit(written["junit"]["junit"])
    suites = {suite.get("name"): suite for suite in root}
    assert len(suites) == len(POINTS)
    suite = suites["ann"]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert [case.get("name") for case in suite] == ["w1d4.1", "w1d4.2"]
    assert suite[0].find("failure") is None
    assert "is yours to write" in suite[1].find("failure").text
    assert "cannot be read" in suites["broken"].find("system-out").text


def test_json_keeps_what_a_submission_says(written):
    found = check_json(written["json"]["json"])
    [says] = [one for one in found["grades"] if one["name"] == "says"]
    message = says["tasks"][0]["message"]
    assert r"\xe9 \ud800 \x00 \x07 \x1b[2J \x9b \uffff \u202e ]]>" in message
    assert r"\x85 \u2028 田中" in message
    assert "characters in all)" in message
    assert len(message) < 11_000


@pytest.mark.parametrize("form", EACH)
def test_each_gets_a_valid_file(written, form):
    assert len(written[form]) == len(POINTS)
    for text in written[form].values():
        CHECKS[form](text)


def test_the_report_is_valid_too(grades):
    page = html_report(grades, Messages("ja"))
    check_text(page)
    assert "<b>&amp;" not in page
    assert page.count("<tr>") == 2 + len(grades) + 2
    assert page.count("サンドボックス") == 1


def test_the_report_says_what_the_submissions_ran_in():
    ran = [Grade(name, (), protection=name) for name in ("bubblewrap", "none", "")]
    pages = [html_report(grades, Messages("en")) for grades in (ran[:1], ran, ran[2:])]
    said = [
        "in a sandbox (bubblewrap), where they could not reach",
        "without a sandbox: 1. Each submission could read",
        "",
    ]
    for page, text in zip(pages, said, strict=True):
        assert text in page
        assert page.count("sandbox") == bool(text)


TASKS = [TaskId(1, 4, 1), TaskId(1, 4, 2)]
OUTCOMES = {
    "solved": (SOLVED, SOLVED),
    "solved, and files were left out": (SOLVED, SOLVED),
    "half": (SOLVED, FAILED),
    "open": (UNSOLVED, UNSOLVED),
}


@pytest.mark.parametrize("problem", ["", SAYS, "=x\n" * 9_000])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_any_grade_is_valid_in_any_format(outcome, problem):
    """The run may have been cut short, or an older version of the course may have written the file of grades."""
    message = {SOLVED: "", FAILED: SAYS * 400, UNSOLVED: ""}
    tasks = [TaskGrade(task, 1, 2, of, message=message[of]) for task, of in zip(TASKS, OUTCOMES[outcome], strict=True)]
    entry = Grade(f"{SAYS}, {outcome}", tuple(tasks), problem, 2.5).as_json()
    text = json.dumps({"version": 1, "grades": [entry] * 2})
    grades = from_json(text)
    for form, check in {"csv": check_csv, "junit": check_junit, "json": check_json, "table": check_text}.items():
        check(TOGETHER[form](grades))
    for form, check in CHECKS.items():
        check(json.dumps(EACH[form](grades[0]), ensure_ascii=False))
    check_text(html_report(grades, Messages("en")))


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (check_text, "\x1b[2J"),
        (check_text, "\u202e"),
        (check_csv, "a,b\r\n1\r\n"),
        (check_csv, "a\r\n=1\r\n"),
        (check_junit, "<testsuites><testsuite name='a' tests='0' failures='0'/></testsuites>"),
        (check_junit, "<testsuites><testsuite name='a' tests='0' failures='0' errors='0' time='1e3'/></testsuites>"),
        (check_junit, "<testsuites><testcase name='a'/></testsuites>"),
        (check_junit, "<testsuites>text</testsuites>"),
        (check_json, "[NaN]"),
        (check_json, '["\\ud800"]'),
        (check_json, '{"a": 1, "a": 2}'),
        (check_gradescope, '{"tests": [{"name": "no score", "max_score": 1}]}'),
        (check_gradescope, '{"score": 1, "tests": [{"score": 2, "max_score": 1}]}'),
        (check_gradescope, '{"score": "1"}'),
        (check_exercism, '{"version": 3, "status": "error", "message": null}'),
        (check_exercism, '{"version": 3, "status": "fail", "message": "x", "tests": []}'),
        (check_exercism, '{"version": 2, "status": "pass", "tests": [{"name": "", "status": "pass", "task_id": 1}]}'),
        (check_classroom, '{"version": 1, "status": "pass", "max_score": 0, "tests": [], "points": 1}'),
    ],
)
def test_the_checks_find_what_is_not_valid(check, text):
    with pytest.raises((AssertionError, KeyError, UnicodeEncodeError)):
        check(text)


# ---------------------------------------------------------------------------------------------------- what they say


def test_gradescope(grades):
    result = shown("gradescope", grades, "bob")
    assert result["score"] == 0
    assert [test["number"] for test in result["tests"]] == ["w1d4.1", "w1d4.2"]
    assert "values differ" in result["tests"][0]["output"]
    assert "This is what you get when" in result["tests"][0]["output"]


def test_github_classroom(grades):
    result = shown("classroom", grades, "ann")
    assert (result["version"], result["status"], result["max_score"]) == (1, "fail", 2)
    assert [(test["status"], test["score"]) for test in result["tests"]] == [("pass", 1), ("fail", 0)]


def test_exercism(grades):
    result = shown("exercism", grades, "ann")
    assert (result["version"], result["status"], result["message"]) == (3, "fail", None)
    assert [test["task_id"] for test in result["tests"]] == [1, 2]
    broken = shown("exercism", grades, "broken")
    assert broken["status"] == "error"
    assert "cannot be read" in broken["message"]


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_terminal_need_not_know_all_characters(tmp_path, form):
    """A table shows other characters as escapes; formats for programs are UTF-8."""
    (tmp_path / "田中é").mkdir()
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "tiny_llm_course", "grade", str(tmp_path), *DAY, "--format", form]
    result = subprocess.run(command, capture_output=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert (r"\u7530\u4e2dé".encode("latin-1") if form == "table" else "田中é".encode()) in result.stdout


def test_files_of_two_submissions_never_have_one_name(tmp_path):
    for name in ("a b", "a_b", "A:B", "ä" * 120, "ä" * 121):
        (tmp_path / "in" / name).mkdir(parents=True)
    run = grade(tmp_path / "in", *DAY, "--format", "exercism", "--out", tmp_path / "out")
    assert run.returncode == 0, run.stderr
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    long = "ä" * 100
    assert names == ["A_B.json", "a_b-2.json", "a_b-3.json", f"{long}-2.json", f"{long}.json"]


def test_hidden_tests_count_and_stay_hidden(submitted, grades, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "extra.py").write_text(
        "import mlx.core as mx, pytest\n\n"
        "@pytest.mark.task('w1d4.1')\ndef test_task_1_secret(impl):\n"
        "    assert impl.layer_norm.RMSNorm(2, mx.array([1.0, 1.0])).dim == 3\n"
    )
    [without] = [one for one in grades if one.name == "ann"]
    [one] = graded_as_json(submitted / "ann", "--hidden", hidden, fresh=False)
    solved, failed, open_ = signs().solved, signs().failed, signs().open
    assert f"  1 of 2  {solved}{open_}  ann" in TOGETHER["table"]([without])
    assert f"  0 of 2  {failed}{open_}  ann" in TOGETHER["table"]([one])
    for form in EACH:  # what students see
        text = json.dumps(EACH[form](one))
        assert "First to fail: a test of your instructor's" in text
        assert "secret" not in text
        assert "dim == 3" not in text
    assert "test_task_1_secret" in TOGETHER["json"]([one])
