"""`tiny-llm grade`: honest and hostile submissions side by side, formats, report."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import pytest
from waiting import until

from tiny_llm_course.grading.formats import EACH, TOGETHER, from_json
from tiny_llm_course.stubs import make_stub
from tiny_llm_course.terminal import signs

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "src" / "tiny_llm_ref"

HEAD = '"""RMSNorm."""\nimport mlx.core as mx\n'
WORKER = "tiny_llm_course.grading.worker"

RIGHT = (REFERENCE / "layer_norm.py").read_text()
CALL = "        x32 = x.astype(mx.float32)\n"


def stub(name):
    return make_stub((REFERENCE / name).read_text())


def at_call(*lines):
    """The right solution of RMSNorm, which does something else first."""
    assert RIGHT.count(CALL) == 1
    return RIGHT.replace(CALL, "".join(f"        {line}\n" for line in lines) + CALL)


def at_import(*lines):
    return RIGHT.replace("import mlx.core as mx\n", "import mlx.core as mx\n" + "".join(f"{line}\n" for line in lines))


VICTIM = "{victim}"  # a file outside of the submission
FOLDER = tempfile.TemporaryDirectory(prefix="graded-here-")  # of all that is graded here: its workers are told by it
ENVIRONMENT = os.environ | {"COLUMNS": "120", "TMPDIR": FOLDER.name}

# What a submission does, how many points it gets of two (task 1 only is solved in all of them), what is said of it.
HOSTILE = {
    "hangs": (at_call("while True: pass"), 0, "no answer within"),
    "hangs in a thread": (
        at_import("import threading", "threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"),
        1,
        "",
    ),
    "kills itself": (at_call("import os", "os.abort()"), 0, "the submission's process has ended"),
    "exits": (at_call("raise SystemExit(0)"), 0, "SystemExit"),
    "exits hard": (at_call("import os", "os._exit(0)"), 0, "the submission's process has ended"),
    "kills the judge": (
        at_call("import os, signal", "os.kill(os.getppid(), signal.SIGKILL)"),
        0,
        "may not send a signal",
    ),
    "forks": (at_call("import os", "os.fork()"), 0, "may not start a process"),
    "starts programs": (at_call("import subprocess", "subprocess.run(['true'])"), 0, "may not start a process"),
    "starts a shell": (at_call("import os", "os.system('true')"), 0, "may not start a process"),
    "writes elsewhere": (at_call(f"open({VICTIM!r}, 'w').write('x')"), 0, "may not write"),
    "removes files": (at_call("import os", f"os.remove({VICTIM!r})"), 0, "may not change files"),
    "writes with mlx": (at_call(f"mx.save({VICTIM!r}, x)"), 0, "may not write files"),
    "writes its own files": (at_call("open('notes.txt', 'w')"), 0, "may not write"),
    "starts programs from below": (
        at_call("import _posixsubprocess", "_posixsubprocess.fork_exec([b'true'])"),
        0,
        "may not import _posixsubprocess",
    ),
    "looks for the guard": (at_call("import gc", "gc.get_objects()"), 0, "may not look for objects"),
    "uses all memory": (at_call("big = bytearray(2**33)"), 0, "MemoryError"),
    "reads the tests": (at_call(f"open({str(ROOT / 'tests' / 'oracles.py')!r}).read()"), 0, "may not read"),
    "reads the reference": (at_call(f"open({str(REFERENCE / 'layer_norm.py')!r}).read()"), 0, "may not read"),
    "imports the reference": (
        HEAD + "from tiny_llm_ref.layer_norm import RMSNorm\n__all__ = ['RMSNorm']\n",
        0,
        "tiny_llm_ref",
    ),
    "imports it at the call": (at_call("import tiny_llm_ref.layer_norm"), 0, "tiny_llm_ref"),
    "uses the network": (
        at_call("import socket", "socket.create_connection(('127.0.0.1', 9))"),
        0,
        "may not use the network",
    ),
    "loads a library": (at_call("import ctypes", "ctypes.CDLL(None)"), 0, "may not import ctypes"),
    "calls the ready-made op": (
        at_call("return mx.fast.rms_norm(x, self.weight, self.eps)"),
        0,
        "may not be called here",
    ),
    "patches mlx": (at_import("mx.mean = mx.sum", "mx.fast.rms_norm = lambda *a: 0"), 0, "values differ"),
    "patches pytest": (
        at_import(
            "import pytest", "pytest.fail = lambda *a, **k: None", "import numpy", "numpy.abs = lambda x: x * 0"
        ).replace("* self.weight", ""),
        0,
        "values differ",
    ),
    "says that all is equal": (
        HEAD
        + "class Equal:\n    shape = property(lambda s: s)\n    def __getattr__(s, n): return s\n"
        + "    __eq__ = lambda *a: True\n"
        + "    def __call__(s, *a, **k): return s\nclass RMSNorm(Equal):\n    def __init__(s, *a, **k): pass\n",
        0,
        "expected an mx.array",
    ),
    "floods the judge": (at_call("raise ValueError('x' * 2**29)"), 0, ""),
    "answers nonsense": (
        at_call(
            "import sys",
            "f = sys._getframe()",
            "while 'connection' not in f.f_locals: f = f.f_back",
            "f.f_locals['connection']._stream.sendall(b'0' * 99)",
        ),
        0,
        "a message of",
    ),
    "does not parse": ("def broken(:\n", 0, "SyntaxError"),
    "is honest": (RIGHT, 1, ""),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """All of them graded in one run, as an instructor does."""
    folder = tmp_path_factory.mktemp("class")
    victim = folder / "victim.txt"
    victim.write_text("kept")
    for name, (source, _, _) in HOSTILE.items():
        package = folder / "submissions" / name / "src" / "tiny_llm"
        package.mkdir(parents=True)
        (package / "layer_norm.py").write_text(source.replace(VICTIM, str(victim)))
        tests = folder / "submissions" / name / "tests"
        tests.mkdir()
        (tests / "test_week_1_day_4.py").write_text("def test_all_is_well(): pass\n")
    out = folder / "grades.json"
    before = {file: file.read_bytes() for file in (ROOT / "tests").glob("*.py")}
    result = grade(
        folder / "submissions", "--week", "1", "--day", "4", "--format", "json", "--out", out, "--patience", "3"
    )
    assert result.returncode == 0, result.stderr
    assert victim.read_text() == "kept"
    assert {file: file.read_bytes() for file in (ROOT / "tests").glob("*.py")} == before
    return {entry["name"]: entry for entry in json.loads(out.read_text())["grades"]}, out


def grade(*arguments):
    command = [sys.executable, "-m", "tiny_llm_course", "grade", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=ENVIRONMENT)


@pytest.mark.parametrize("name", HOSTILE)
def test_each_gets_what_it_deserves(graded, name):
    _, points, message = HOSTILE[name]
    entry = graded[0][name]
    assert entry["points"] == points
    texts = " ".join([entry["problem"], *(task["message"] for task in entry["tasks"])])
    assert message in texts
    if not points:
        assert entry["tasks"][0]["passed"] < entry["tasks"][0]["total"]


def test_no_process_is_left(graded):
    until(lambda: not workers(), 20, told=workers)


def workers():
    """The processes that run submissions which are graded here."""
    shown = subprocess.check_output(["ps", "-wweo", "args"], text=True)
    return [line for line in shown.splitlines() if WORKER in line and FOLDER.name in line]


def test_the_report_is_one_page_without_outside_requests(graded, tmp_path):
    out = tmp_path / "report.html"
    command = [sys.executable, "-m", "tiny_llm_course", "grade-report", str(graded[1]), "--out", str(out)]
    assert subprocess.run(command, capture_output=True).returncode == 0
    page = out.read_text()
    assert not re.search(r"(src|href)=|https?://|url\(|@import", page)
    assert page.count("<tr>") == 2 + len(HOSTILE) + 2
    rows = list(csv.reader(out.with_suffix(".csv").open(encoding="utf-8")))
    assert len(rows) == 1 + len(HOSTILE)


# ------------------------------------------------------------------------------------------------ what is submitted


def package(folder, **sources):
    folder.mkdir(parents=True)
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)


MISTAKE = RIGHT.replace("* self.weight", "")


@pytest.fixture(scope="module")
def submitted(tmp_path_factory):
    """In folders, ZIP files and odd places."""
    folder = tmp_path_factory.mktemp("submitted")
    package(folder / "ann" / "src" / "tiny_llm", layer_norm=RIGHT)
    package(folder / "bob", layer_norm=MISTAKE, basics=stub("basics.py"))
    package(folder / "=cmd()" / "tiny_llm", layer_norm=stub("layer_norm.py"))
    package(folder / "empty", notes="")
    with zipfile.ZipFile(folder / 'eve, "q" 田中.zip', "w") as archive:
        archive.writestr("homework-main/src/tiny_llm/layer_norm.py", RIGHT)
        archive.writestr("homework-main/src/tiny_llm/../../../../evil.py", "x = 1\n")
        archive.writestr("/etc/evil.py", "x = 1\n")
    (folder / "broken.zip").write_bytes(b"PK\x03\x04 no archive")
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_llm/layer_norm.py", b"#" * 2**25)
    (folder / "outside").mkdir()
    (folder / "outside" / "layer_norm.py").symlink_to(REFERENCE / "layer_norm.py")
    return folder


def graded_as_json(*arguments):
    result = grade(*arguments, "--week", "1", "--day", "4", "--format", "json")
    assert result.returncode == 0, result.stderr
    return from_json(result.stdout)


@pytest.fixture(scope="module")
def grades(submitted):
    """Of all that was submitted. Each format shows the same grades."""
    return graded_as_json(submitted)


def shown(form, grades, name):
    """What a format that writes a file for each submission writes for this one."""
    [one] = [one for one in grades if one.name == name]
    return json.loads(json.dumps(EACH[form](one)))


@pytest.mark.parametrize(("form", "file"), [("csv", ""), ("gradescope", "ann.json")])
def test_formats_are_written_into_files(submitted, grades, tmp_path, form, file):
    out = tmp_path / "out"
    day = ["--week", "1", "--day", "4"]
    assert grade(submitted / "ann", *day, "--format", form, "--out", out).returncode == 0
    written = (out / file).read_text(encoding="utf-8")
    [ann] = [one for one in grades if one.name == "ann"]
    timeless = re.compile(r"\d+\.\d+|\"execution_time\": \d+")  # it took another time
    expected = TOGETHER[form]([ann]) if form in TOGETHER else json.dumps(EACH[form](ann), indent=1, ensure_ascii=False)
    assert timeless.sub("", written.replace("\r", "")) == timeless.sub("", expected.replace("\r", ""))


def test_csv_is_quoted_and_cannot_compute(grades):
    rows = list(csv.DictReader(io.StringIO(TOGETHER["csv"](grades), newline="")))
    points = {row["submission"]: row["points"] for row in rows}
    assert points == {
        "'=cmd()": "0",
        "ann": "1",
        "bob": "0",
        "bomb": "0",
        "broken": "0",
        "empty": "0",
        'eve, "q" 田中': "1",
        "outside": "0",
    }
    row = {row["submission"]: row for row in rows}
    assert (row["ann"]["w1d4.1"], row["ann"]["w1d4.2"]) == ("1", "0")
    assert row["bob"]["mistakes"] == "w1d4.1:weight-ignored" or row["bob"]["mistakes"].startswith("w1d4.1:")
    assert "expected up to 500 files" in row["bomb"]["problem"]
    assert "cannot be read" in row["broken"]["problem"]
    assert "expected a package tiny_llm, found none" in row["empty"]["problem"]


def test_junit(grades):
    root = ElementTree.fromstring(TOGETHER["junit"](grades))
    assert root.tag == "testsuites"
    suite = {suite.get("name"): suite for suite in root}["ann"]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert [case.get("name") for case in suite] == ["w1d4.1", "w1d4.2"]
    assert suite[0].find("failure") is None
    assert "is yours to write" in suite[1].find("failure").text


def test_gradescope(grades):
    """The fields and types of the documented results.json."""
    result = shown("gradescope", grades, "bob")
    assert set(result) <= {
        "score",
        "execution_time",
        "output",
        "visibility",
        "stdout_visibility",
        "extra_data",
        "tests",
    }
    assert result["score"] == 0
    for test in result["tests"]:
        assert set(test) <= {"score", "max_score", "status", "name", "number", "output", "tags", "visibility"}
        assert test["status"] in ("passed", "failed")
        assert isinstance(test["score"], int | float)
    assert [test["number"] for test in result["tests"]] == ["w1d4.1", "w1d4.2"]
    assert "values differ" in result["tests"][0]["output"]
    assert "This is what you get when" in result["tests"][0]["output"]


def test_github_classroom(grades):
    """The object that graders hand to the reporter: version 1."""
    result = shown("classroom", grades, "ann")
    assert (result["version"], result["status"], result["max_score"]) == (1, "fail", 2)
    for test in result["tests"]:
        assert set(test) == {"name", "status", "score", "message", "test_code", "filename", "line_no", "duration"}
    assert [(test["status"], test["score"]) for test in result["tests"]] == [("pass", 1), ("fail", 0)]


def test_exercism(grades):
    """Version 3 of the test runners' interface."""
    result = shown("exercism", grades, "ann")
    assert (result["version"], result["status"], result["message"]) == (3, "fail", None)
    for number, test in enumerate(result["tests"], start=1):
        assert test["task_id"] == number
        assert test["status"] in ("pass", "fail", "error")
        assert {"name", "test_code"} <= set(test)
        assert (test["message"] is None) == (test["status"] == "pass")
    broken = shown("exercism", grades, "broken")
    assert broken["status"] == "error"
    assert "cannot be read" in broken["message"]


def test_hidden_tests_count_and_stay_hidden(submitted, grades, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "extra.py").write_text(
        "import mlx.core as mx, pytest\n\n"
        "@pytest.mark.task('w1d4.1')\ndef test_task_1_secret(impl):\n"
        "    assert impl.layer_norm.RMSNorm(2, mx.array([1.0, 1.0])).dim == 3\n"
    )
    [without] = [one for one in grades if one.name == "ann"]
    [one] = graded_as_json(submitted / "ann", "--hidden", hidden)
    solved, failed, open_ = signs().solved, signs().failed, signs().open
    assert f"  1 of 2  {solved}{open_}  ann" in TOGETHER["table"]([without])
    assert f"  0 of 2  {failed}{open_}  ann" in TOGETHER["table"]([one])
    for form in EACH:  # what students see
        text = json.dumps(EACH[form](one))
        assert "First to fail: a test of your instructor's" in text
        assert "secret" not in text
        assert "dim == 3" not in text
    assert "test_task_1_secret" in TOGETHER["json"]([one])


def test_ctrl_c_ends_everything(submitted, tmp_path):
    folder = tmp_path / "many"
    for number in range(6):
        package(folder / f"s{number}" / "tiny_llm", layer_norm=at_call("while True: pass"))
    command = [sys.executable, "-m", "tiny_llm_course", "grade", str(folder), "--week", "1", "--day", "4"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=restore_ctrl_c, env=ENVIRONMENT
    )
    until(workers)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    test_no_process_is_left(None)


def restore_ctrl_c():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no such file or folder"),
        (
            [".", "--format", "xls"],
            "--format: expected one of table, csv, junit, json, gradescope, classroom, exercism",
        ),
        (
            [".", "--format", "gradescope"],
            "--format gradescope writes a file for each submission: expected --out FOLDER",
        ),
        ([".", "--week", "7"], "there is no week '7'"),
        ([".", "--hidden", "nowhere"], "--hidden: expected a folder with test files, got nowhere"),
        ([".", "--jobs", "-1"], "--jobs: expected 0 or more, got -1"),
    ],
)
def test_what_does_not_exist(arguments, message):
    result = grade(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {message}")
