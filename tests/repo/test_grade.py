"""`tiny-llm grade`: honest and hostile submissions side by side, and the report about them."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from handed_in import ENVIRONMENT, FOLDER, REFERENCE, RIGHT, ROOT, at_call, at_import, grade, package
from typer.testing import CliRunner
from waiting import restore_ctrl_c, until

from tiny_llm_course.commands import app
from tiny_llm_course.grading.formats import from_json
from tiny_llm_course.grading.protection import protection
from tiny_llm_course.pytest_runs.test_run import pytest_command

HEAD = '"""RMSNorm."""\nimport mlx.core as mx\n'
WORKER = "tiny_llm_course.grading.worker"
VICTIM = "{victim}"  # a file outside the submission

NO_WRITING, NO_READING = "Read-only file system|not permitted", "No such file|not permitted"  # on Linux, on a Mac

# Forbidden actions, and a pattern for the answer to each. One submission tries all of these actions, and its error
# lists the answers.
REFUSED = {
    "kills the judge": ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", "not permitted"),
    "forks": ("import os; os.fork()", "not permitted"),
    "starts programs": ("import subprocess; subprocess.run(['true'])", "not permitted"),
    "writes elsewhere": (f"open({VICTIM!r}, 'w').write('x')", NO_WRITING),
    "removes files": (f"import os; os.remove({VICTIM!r})", NO_WRITING),
    "writes with mlx": (f"mx.save({VICTIM!r}, x)", "Failed to open"),
    "writes its own files": ("open('notes.txt', 'w')", NO_WRITING),
    "uses all memory": ("big = bytearray(2**33)", "MemoryError"),
    "reads the tests": (f"open({str(ROOT / 'tests' / 'oracles.py')!r}).read()", NO_READING),
    "reads the reference": (f"open({str(REFERENCE / 'layer_norm.py')!r}).read()", NO_READING),
    "imports it at the call": ("import tiny_llm_ref.layer_norm", "tiny_llm_ref may not be imported here"),
    "uses the network": ("import socket; socket.create_connection(('127.0.0.1', 9))", "not permitted"),
}
TRIES = [
    line
    for name, (code, _) in REFUSED.items()
    for line in (
        f"try: {code}; said.append({name!r} ' is possible')",
        f"except BaseException as error: said.append({name!r} f': {{error!r:.300}}')",
    )
]

# For each submission: its code, its points out of two (only task 1 is solved in all submissions), and a pattern for
# the message.
HOSTILE = {
    "tries much": (at_call("said = []", *TRIES, "raise ValueError(chr(10).join(said))"), 0, "ValueError"),
    "hangs": (at_call("while True: pass"), 0, "no answer within"),
    "hangs in a thread": (
        at_import("import threading", "threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"),
        1,
        "",
    ),
    "kills itself": (at_call("import os", "os.abort()"), 0, "the submission's process has ended"),
    "exits": (at_call("raise SystemExit(0)"), 0, "SystemExit"),
    "exits hard": (at_call("import os", "os._exit(0)"), 0, "the submission's process has ended"),
    "imports the reference": (
        HEAD + "from tiny_llm_ref.layer_norm import RMSNorm\n__all__ = ['RMSNorm']\n",
        0,
        "tiny_llm_ref may not be imported here",
    ),
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
        "the limits of header and message",
    ),
    "does not parse": ("def broken(:\n", 0, "SyntaxError"),
    "is honest": (RIGHT, 1, ""),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Grade all submissions in one run, as an instructor does."""
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


@pytest.mark.parametrize("name", HOSTILE)
def test_each_gets_what_it_deserves(graded, name):
    _, points, message = HOSTILE[name]
    entry = graded[0][name]
    assert entry["points"] == points
    texts = " ".join([entry["problem"], *(task["message"] for task in entry["tasks"])])
    assert re.search(message, texts), texts
    if not points:
        assert entry["tasks"][0]["passed"] < entry["tasks"][0]["total"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(graded, name):
    _, message = REFUSED[name]
    said = graded[0]["tries much"]["tasks"][0]["message"]
    assert re.search(rf"^.*{name}: .*({message})", said, re.MULTILINE), said


def test_each_says_what_it_ran_in(graded):
    assert {entry["protection"] for entry in graded[0].values()} == {protection().sandbox}


def test_no_process_is_left(graded):
    until(lambda: not workers(), 120, told=workers)


def workers():
    """Return the processes that run the submissions of this test."""
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


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_everything(tmp_path, sent, code):
    folder = tmp_path / "many"
    for number in range(6):
        package(folder / f"s{number}" / "tiny_llm", layer_norm=at_call("while True: pass"))
    command = [sys.executable, "-m", "tiny_llm_course", "grade", str(folder), "--week", "1", "--day", "4", "--fresh"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=restore_ctrl_c, env=ENVIRONMENT
    )
    until(workers)
    process.send_signal(sent)
    assert process.wait(timeout=600) == code
    test_no_process_is_left(None)


def test_nothing_that_was_handed_in_is_imported_by_the_judge(tmp_path):
    """The test matters because Python looks in the current folder first."""
    folder, script = tmp_path / "class", tmp_path / "tiny-llm"
    package(folder / "ann", layer_norm=RIGHT)
    for name in ("pytest", "json", "numpy"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    script.write_text("from tiny_llm_course.__main__ import main\nmain()\n")  # as what is installed
    command = [sys.executable, str(script), "grade", ".", "--week", "1", "--day", "4", "--fresh"]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=folder)
    assert result.stdout.lstrip().startswith("1 of 2"), result.stderr
    assert not (tmp_path / "ran").exists()


def test_a_judge_that_is_killed_costs_one_submission(tmp_path):
    """On some systems, a submission can kill its judge; or a system that has no memory left does."""
    folder = tmp_path / "two"
    package(folder / "eve" / "tiny_llm", layer_norm=at_call("while True: pass"))
    package(folder / "zoe" / "tiny_llm", layer_norm=RIGHT)
    command = [sys.executable, "-m", "tiny_llm_course", "grade", str(folder), "--week", "1", "--day", "4"]
    command += ["--format", "json", "--jobs", "1", "--fresh"]
    place = Path(FOLDER.name) / "killed"
    place.mkdir()
    environment = ENVIRONMENT | {"TMPDIR": str(place)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        until(workers)
        judge = subprocess.check_output(["pgrep", "-f", f"pytest .*--submission={place}"])
        os.kill(int(judge.split()[0]), signal.SIGKILL)
        grades = from_json(process.communicate()[0])
    assert [(grade.name, grade.points) for grade in grades] == [("eve", 0), ("zoe", 1)]
    assert "SIGKILL" in grades[0].problem
    assert list(place.iterdir()) == []
    test_no_process_is_left(None)


def test_what_tests_ask_of_mlx_is_asked_where_the_code_runs(tmp_path):
    """MLX's random numbers, its memory use, and the truth value of an object come from the other process."""
    shutil.copytree(REFERENCE, tmp_path / "tiny_llm", ignore=shutil.ignore_patterns("built", "__pycache__"))
    files = [ROOT / "tests" / f"test_week_{day}.py" for day in ("1_day_7", "2_day_1", "2_day_7")]
    names = "every_draw_is_another or no_new_array or false_while_empty or memory_of_keys"
    command = pytest_command(files, "tiny_llm", [f"--submission={tmp_path}", "-k", names])
    run = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert "4 passed" in run.stdout, run.stdout
    cache = tmp_path / "tiny_llm" / "kv_cache.py"
    source, right = cache.read_text(), "self.keys[:, :, self.offset : end] = key"
    assert source.count(right) == 1
    wrong = "self.keys = mx.concatenate([self.keys[:, :, : self.offset], key, self.keys[:, :, end:]], axis=2)"
    cache.write_text(source.replace(right, wrong))
    run = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert "made new arrays although the old ones had room" in run.stdout, run.stdout


@pytest.mark.nightly("grades the whole course: several minutes a week")
@pytest.mark.parametrize("week", ["0", "1", "2", "3"])
def test_the_reference_gets_every_point(week):
    [found] = from_json(grade(REFERENCE, "--week", week, "--format", "json", "--seconds", "3000").stdout)
    assert [task.task for task in found.tasks if not task.points] == []


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
    result = CliRunner().invoke(app, ["grade", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")
