"""`tiny-llm grade` with kernels: right, wrong and hostile C++ side by side, and a grader that lives on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.mistaken import compile_mistakes, mistaken_sources
from tiny_llm_course.syllabus import TaskId

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "src" / "tiny_llm_ref"
TASK = TaskId.parse("w2d5.3")

RIGHT = (REFERENCE / "kernels/swiglu.cpp").read_text()
MISTAKE = next(mistake for mistake in entry_of(TASK).mistakes if mistake.id == "sign-in-the-rest")


def at_call(line):
    """The right kernel, which does something else first."""
    before = "    // task w2d5.3 begin\n"
    assert RIGHT.count(before) == 1
    return RIGHT.replace(before, f"{before}    {line}\n")


# What a submission's swiglu.cpp does, how many points it gets, what is said of it.
SUBMITTED = {
    "is right": (RIGHT, 1, ""),
    "is wrong": (mistaken_sources(REFERENCE, TASK, MISTAKE)["kernels/swiglu.cpp"], 0, "values differ"),
    "does not compile": (at_call("flaot x = 0;"), 0, "kernels/swiglu.cpp:14: 'flaot' was not declared in this scope"),
    "follows a null pointer": (at_call("*(volatile int*)nullptr = 1;"), 0, "the submission's process has ended"),
    "never ends": (at_call("for (volatile int i = 0; i == 0;) continue;"), 0, "no answer within"),
    "writes outside": (at_call("out[n] = 0;"), 0, "swiglu wrote outside of output 0"),
    "includes what it likes": ('#include "/etc/passwd"\n' + RIGHT, 0, "a submission may not use"),
    "would kill its judge": (
        at_call("if (kill(getppid(), SIGKILL) == 0) return;").replace(
            "<cmath>", "<cmath>\n#include <signal.h>\n#include <unistd.h>"
        ),
        1,
        "",
    ),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """All of them graded in one run, with files of the course itself beside them that are not taken."""
    folder = tmp_path_factory.mktemp("class")
    for name, (source, _, _) in SUBMITTED.items():
        package = folder / "submissions" / name / "src" / "tiny_llm"
        (package / "kernels").mkdir(parents=True)
        (package / "basics.py").write_text("raise SystemExit\n")
        (package / "kernels" / "swiglu.cpp").write_text(source)
        for own in ("extension.py", "compiler.py", "kernel.h", "fence.h", "bridge.cpp"):
            (package / "kernels" / own).write_text("#error 'of the submission'\n")
    compile_mistakes(REFERENCE, TASK, entry_of(TASK).mistakes)  # in a test run there may not be time for all
    out = folder / "grades.json"
    command = [sys.executable, "-m", "tiny_llm_course", "grade", str(folder / "submissions"), "--week", "2", "--day"]
    command += ["5", "--format", "json", "--out", str(out), "--patience", "3", "--fresh"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return {entry["name"]: entry for entry in json.loads(out.read_text())["grades"]}


def split(entry):
    """What is said of the task, and of the day's other tasks."""
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
    assert {other["outcome"] for other in others[:2]} == {"unsolved"}
    assert "solved" not in {other["outcome"] for other in others}  # behind the task: failed, where the process is gone
    assert task["total"] == split(graded["is right"])[0]["passed"]


def test_a_wrong_kernel_is_named(graded):
    assert split(graded["is wrong"])[0]["mistake"] == MISTAKE.id
    assert [split(entry)[0]["mistake"] for entry in graded.values()].count(MISTAKE.id) == 1
