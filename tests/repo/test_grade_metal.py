"""`tiny-llm grade` with kernels in Metal, which run on the submission's behalf, and are watched as in any test."""

import json
import subprocess
import sys

import pytest

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.diagnosis.mutants import mutant_sources
from tiny_llm_course.diagnosis.observation import Observation
from tiny_llm_course.diagnosis.package_under_test import REFERENCE
from tiny_llm_course.grading.remote import RemoteError
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_native.compiler import CompileError
from tiny_llm_native.extension import KernelError

TASK = TaskId.parse("w2d4.4")
NAME = "kernels/quantized_matvec.metal"
RIGHT = (REFERENCE / NAME).read_text()
LINE = RIGHT.partition("float dot")[0].count("\n") + 1
RACES, LEFT_OUT, APART = (
    entry_of(TASK).mistake(id) for id in ("all-lanes-write", "last-rows-left-out", "a-run-for-each-lane")
)

# For each submission: its file, its points, and the message.
SUBMITTED = {
    "is right": (RIGHT, 1, ""),
    "races": (mutant_sources(REFERENCE, TASK, RACES)[NAME], 0, "data race on out[0]"),
    "leaves rows out": (mutant_sources(REFERENCE, TASK, LEFT_OUT)[NAME], 0, "that no thread wrote"),
    "reads far apart": (mutant_sources(REFERENCE, TASK, APART)[NAME], 0, "touches 32 lines of 64 bytes"),
    "does not compile": (RIGHT.replace("float dot", "flaot dot"), 0, f"quantized_matvec.metal:{LINE}: 'flaot' was not"),
    "reads other files": (
        RIGHT.replace("KERNEL", '#include "/etc/passwd"\n\nKERNEL', 1),
        0,
        "there are no files to include",
    ),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Grade all submissions in one run. One has a file of the course itself, which is not taken."""
    folder = tmp_path_factory.mktemp("class")
    for name, (source, _, _) in SUBMITTED.items():
        kernels = folder / "submissions" / name / "src" / "tiny_llm" / "kernels"
        kernels.mkdir(parents=True)
        (folder / "submissions" / name / "src" / "tiny_llm" / "basics.py").write_text("raise SystemExit\n")
        (folder / "submissions" / name / "src" / "tiny_llm" / NAME).write_text(source)
        (kernels / "metal.py").write_text("raise SystemExit\n")
    out = folder / "grades.json"
    command = [sys.executable, "-m", "tiny_llm_course", "grade", str(folder / "submissions"), "--week", "2", "--day"]
    command += ["4", "--format", "json", "--out", str(out), "--fresh"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return {entry["name"]: entry for entry in json.loads(out.read_text())["grades"]}


@pytest.mark.parametrize("name", SUBMITTED)
def test_each_kernel_gets_what_it_deserves(graded, name):
    _, points, message = SUBMITTED[name]
    entry = graded[name]
    task = entry["tasks"][-1]
    assert entry["points"] == points
    assert (task["task"], task["outcome"]) == (str(TASK), "solved" if points else "failed")
    assert message in task["message"] + entry["problem"]


def test_an_error_is_compared_wherever_it_was_raised():
    """The submission's process raises the same error as the mistake itself does here, so the mistake gets its name."""
    text = "kernel 'k': data race on part[{}]: a write\n    {}.metal:{}: code\n  by thread (1, 0, 0)\n  No barrier."
    seen = Observation(error=RemoteError("KernelError: " + text.format(3, "theirs", 7)))
    assert seen.equals(Observation(error=KernelError(text.format(3, "ours", 9))))
    assert not seen.equals(Observation(error=KernelError(text.format(4, "ours", 9))))
    assert not seen.equals(Observation(error=CompileError(text.format(3, "ours", 9))))
