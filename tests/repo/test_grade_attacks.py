"""`tiny-llm grade` against submissions that try everything: in a sandbox nothing succeeds, without one only reading."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from attacks import ATTACKS, VICTIMS, hostile_kernel, hostile_metal, hostile_module, succeeded
from building import script

from tiny_llm_course.grading.protection import protection, told
from tiny_llm_course.grading.sandbox import HIDDEN, NONE
from tiny_llm_course.packages import REFERENCE

ROOT = Path(__file__).resolve().parents[2]
SUBMITTED = {  # a file of the package, what makes it hostile, and the task whose tests run it
    "python": ("layer_norm.py", hostile_module, "w1d4.1"),
    "cpp": ("kernels/swiglu.cpp", hostile_kernel, "w2d5.3"),
    "metal": ("kernels/quantized_matvec.metal", hostile_metal, "w2d4.4"),
}


def state(folder):
    """Of all that is outside of the submissions."""
    return {file.name: (oct(file.lstat().st_mode), file.read_bytes()) for file in sorted(folder.iterdir())}


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in VICTIMS:
        (folder / name).write_text("kept")
        (folder / name).chmod(0o600)
    return folder


@pytest.fixture
def names(tmp_path, outside):
    """What the attacks are about: all of it is there to be read, and the port takes connections."""
    other = tmp_path / "submissions" / "other" / "layer_norm.py"
    other.parent.mkdir(parents=True)
    other.write_text("# another student's work\n")
    compiled = HIDDEN[-1] / tmp_path.name
    compiled.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield {
            "COMPILED": str(compiled.parent),
            "REFERENCE": str(REFERENCE / "layer_norm.py"),
            "FIXTURE": str(ROOT / "tests" / "fixtures" / "transformers_qwen3.npz"),
            "CATALOGUE": str(ROOT / "src" / "tiny_llm_course" / "catalogue" / "week_1_day_4.toml"),
            "OTHER": str(other),
            "SECRET": str(outside / VICTIMS[0]),
            "OUTSIDE": str(outside),
            "MARK": tmp_path.name,
            "PORT": listener.getsockname()[1],
        }
    compiled.rmdir()


def grade(folder, language, names, *options, **environment):
    """The task's grade, and what a submission ran in."""
    file, hostile, task = SUBMITTED[language]
    package = folder / "submissions" / "hostile" / "tiny_llm"
    (package / "kernels").mkdir(parents=True)
    (package / "basics.py").write_text((REFERENCE / "basics.py").read_text())
    (package / file).write_text(hostile(names))
    words = [str(package.parent), "--week", task[1], "--day", task[3], "--format", "json", "--fresh", *options]
    environment = os.environ | {"GRADER_TOKEN": "secret"} | environment
    command = [sys.executable, "-m", "tiny_llm_course", "grade", *words]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    [entry] = json.loads(run.stdout)["grades"]
    [one] = [one for one in entry["tasks"] if one["task"] == task]
    return one, entry["protection"]


@pytest.mark.parametrize("language", SUBMITTED)
def test_in_a_sandbox_nothing_succeeds(language, names, outside, tmp_path):
    assert protection().sandbox != NONE, told()
    before, shared = state(outside), shared_memory()
    task, ran_in = grade(tmp_path, language, names, "--untrusted")
    assert succeeded(language, task["message"]) == []
    assert (task["outcome"], ran_in) == ("failed", protection().sandbox)
    assert (state(outside), shared_memory()) == (before, shared)


@pytest.mark.skipif(sys.platform == "darwin", reason="system calls are filtered on Linux only")
@pytest.mark.parametrize("language", SUBMITTED)
def test_without_one_files_are_read_and_nothing_else_happens(language, names, outside, tmp_path):
    before, shared = state(outside), shared_memory()
    fails = Path(script(tmp_path, "bwrap", "exit 1")).parent
    task, ran_in = grade(tmp_path, language, names, PATH=f"{fails}:{os.environ['PATH']}")
    reads = [name for name in succeeded(language, task["message"]) if name.startswith("reads: ")]
    assert reads == succeeded(language, task["message"])
    assert {"reads: other_submission", "reads: secret"} <= set(reads) < set(ATTACKS[language])
    assert (task["outcome"], ran_in) == ("failed", NONE)
    assert (state(outside), shared_memory()) == (before, shared)


def shared_memory():
    folder = Path("/dev/shm")
    return {file.name for file in folder.iterdir()} if folder.is_dir() else set()
