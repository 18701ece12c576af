"""`tiny-llm grade` with kernels: right, wrong and hostile C++ side by side, which the grader survives."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.diagnosis.mutants import compile_mistakes, mutant_sources
from tiny_llm_course.grading import kernel_builds
from tiny_llm_course.grading.kernel_builds import compile_submitted, is_taken
from tiny_llm_course.grading.sandbox import NONE
from tiny_llm_course.learner.workspace import Workspace
from tiny_llm_course.native import mlx_extension
from tiny_llm_course.tasks.syllabus import TaskId

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "src" / "tiny_llm_ref"
TASK = TaskId.parse("w2d5.3")

RIGHT = (REFERENCE / "kernels/swiglu.cpp").read_text()
MISTAKE = next(mistake for mistake in entry_of(TASK).mistakes if mistake.id == "sign-in-the-rest")


def at_call(line):
    """Return the right kernel, with this line at the beginning of each call."""
    before = "    // task w2d5.3 begin\n"
    assert RIGHT.count(before) == 1
    return RIGHT.replace(before, f"{before}    {line}\n")


# For each submission: the change to swiglu.cpp, its points, and the message.
SUBMITTED = {
    "is wrong": (mutant_sources(REFERENCE, TASK, MISTAKE)["kernels/swiglu.cpp"], 0, "values differ"),
    "does not compile": (at_call("flaot x = 0;"), 0, "kernels/swiglu.cpp:14: 'flaot' was not declared in this scope"),
    "follows a null pointer": (at_call("*(volatile int*)nullptr = 1;"), 0, "the submission's process has ended"),
    "never ends": (at_call("for (volatile int i = 0; i == 0;) continue;"), 0, "no answer within"),
    "writes outside": (at_call("out[n] = 0;"), 0, "swiglu wrote outside of output 0"),
    "includes the solution": (f'/**/#include "{REFERENCE}/kernels/swiglu.cpp"\n', 0, "No such file or directory"),
    "is right, and would kill its judge": (
        at_call("if (kill(getppid(), SIGKILL) == 0) return;").replace(
            "<cmath>", "<cmath>\n#include <signal.h>\n#include <unistd.h>"
        ),
        1,
        "",
    ),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Grade all submissions in one run. They also contain files of the course itself, which are not taken."""
    folder = tmp_path_factory.mktemp("class")
    for name, (source, _, _) in SUBMITTED.items():
        package = folder / "submissions" / name / "src" / "tiny_llm"
        (package / "kernels").mkdir(parents=True)
        (package / "basics.py").write_text("raise SystemExit\n")
        (package / "kernels" / "swiglu.cpp").write_text(source)
        for own in ("extension.py", "compiler.py", "kernel.h", "pool.h", "mlx_extension.cpp"):
            (package / "kernels" / own).write_text("#error 'of the submission'\n")
    compile_mistakes(REFERENCE, TASK, entry_of(TASK).mistakes)  # in a test run there may not be time for all
    out = folder / "grades.json"
    command = [sys.executable, "-m", "tiny_llm_course", "grade", str(folder / "submissions"), "--week", "2", "--day"]
    command += ["5", "--format", "json", "--out", str(out), "--patience", "3", "--fresh"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return {entry["name"]: entry for entry in json.loads(out.read_text())["grades"]}


def split(entry):
    """Return the grades of the task, and of the day's other tasks."""
    tasks = {task["task"]: task for task in entry["tasks"]}
    return tasks.pop(str(TASK)), list(tasks.values())


@pytest.mark.parametrize("name", SUBMITTED)
def test_each_kernel_gets_what_it_deserves(graded, name):
    _, points, message = SUBMITTED[name]
    entry = graded[name]
    task, others = split(entry)
    assert entry["points"] == points
    assert (task["task"], task["outcome"]) == (str(TASK), "solved" if points else "failed")
    assert message in task["message"] + entry["problem"]
    assert "not used, since the course has its own: kernels/compiler.py, kernels/extension.py" in entry["problem"]
    assert {other["outcome"] for other in others[:2]} == {"unsolved"}
    assert "solved" not in {other["outcome"] for other in others}  # behind the task: failed, where the process is gone
    assert task["total"] == split(graded["is right, and would kill its judge"])[0]["passed"]


def test_a_wrong_kernel_is_named(graded):
    assert split(graded["is wrong"])[0]["mistake"] == MISTAKE.id
    assert [split(entry)[0]["mistake"] for entry in graded.values()].count(MISTAKE.id) == 1


# ------------------------------------------------------------------------------------------------------ the compiler


@pytest.fixture
def package(tmp_path):
    """Return the reference's kernels, none of them compiled."""
    unused = shutil.ignore_patterns("built", "__pycache__")
    shutil.copytree(REFERENCE / "kernels", tmp_path / "tiny_llm" / "kernels", ignore=unused)
    return tmp_path / "tiny_llm"


def test_all_compilers_of_a_submission_share_its_seconds(package, monkeypatch):
    """Each compiler takes 20 of the 50 seconds for all compilers. A kernel that the course does not ask for takes
    none."""
    now, seconds_of = 0.0, {}

    def compile_one(folder, file, sandbox, memory, seconds, stop):
        nonlocal now
        if folder == package:
            seconds_of[file.name] = seconds
            now += 20
        return file.name != "softmax.cpp"

    (package / "kernels" / "bomb.cpp").write_text("int x;\n")
    monkeypatch.setattr(kernel_builds, "_compile", compile_one)
    monkeypatch.setattr(kernel_builds, "monotonic", lambda: now)
    assert not compile_submitted(package, NONE, 2**32, 50, threading.Event())  # not each came to its end
    assert [*seconds_of.values()][:4] == [50, 30, 10, -10]
    assert "swiglu.cpp" in seconds_of
    assert "bomb.cpp" not in seconds_of


def test_memory_of_the_compiler(package):
    for memory, count in ((2**26, 0), (2**32, 1)):
        built = mlx_extension.built(package / "kernels")
        built.mkdir(exist_ok=True)
        kernel_builds._compile(package, package / "kernels/swiglu.cpp", NONE, memory, 60, threading.Event())
        assert len([*built.glob("swiglu-*.so")]) == count


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        *[(f"kernels/{name}", True) for name in ("softmax.cpp", "softmax.metal", "Helper.h")],
        *[(f"kernels/{name}", False) for name in ("extension.py", "Extension.py", "kernel.h", "argmax.cpp")],
        ("Kernels/extension.py", False),
        ("attention.py", True),
    ],
)
def test_files_of_the_course_are_not_taken(path, taken):
    """Nor are they taken if their names differ in case, which a Mac's disk ignores."""
    assert is_taken(path, Workspace()) == taken
