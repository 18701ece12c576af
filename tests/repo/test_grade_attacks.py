"""`tiny-llm grade` against submissions that try every attack: with a sandbox none succeeds, without one only
reading."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from attacks import ATTACKS, VICTIMS, hostile_kernel, hostile_metal, hostile_module, succeeded
from building import script
from handed_in import at_call, package
from waiting import restore_ctrl_c, until

from tiny_llm_course.diagnosis.package_under_test import REFERENCE
from tiny_llm_course.grading.protection import protection, told
from tiny_llm_course.grading.sandbox import HIDDEN, NONE

ROOT = Path(__file__).resolve().parents[2]
SUBMITTED = {  # a file of the package, what makes it hostile, and the task whose tests run it
    "python": ("layer_norm.py", hostile_module, "w1d4.1"),
    "cpp": ("kernels/swiglu.cpp", hostile_kernel, "w2d5.3"),
    "metal": ("kernels/quantized_matvec.metal", hostile_metal, "w2d4.4"),
}
GRADE = [sys.executable, "-m", "tiny_llm_course", "grade"]
STAYS = at_call(  # a process that does what it can to outlive its judge, and then takes a name
    "import ctypes, os, signal",
    "system = ctypes.CDLL(None)",
    "system.setsid(), system.setpgid(0, 0), system.prctl(1, 0), system.signal(15, 1)",
    "system.prctl(15, b'stays')",
    "while True: signal.pause()",
)


def state(folder):
    """Return the modes and contents of all files outside of the submissions."""
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
    """Return the targets of the attacks. All of them can be read, and the port accepts connections."""
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
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody connected
            listener.accept()
    compiled.rmdir()


def grade(folder, language, names, *options, **environment):
    """Return the task's grade, and the sandbox in which the submission ran."""
    file, hostile, task = SUBMITTED[language]
    package = folder / "submissions" / "hostile" / "tiny_llm"
    (package / "kernels").mkdir(parents=True)
    (package / "basics.py").write_text((REFERENCE / "basics.py").read_text())
    (package / file).write_text(hostile(names))
    words = [str(package.parent), "--week", task[1], "--day", task[3], "--format", "json", "--fresh", *options]
    temporary = folder / "temporary"
    temporary.mkdir()
    environment = os.environ | {"GRADER_TOKEN": "secret", "TMPDIR": str(temporary)} | environment
    run = subprocess.run([*GRADE, *words], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert_nothing_left(temporary)
    [entry] = json.loads(run.stdout)["grades"]
    [one] = [one for one in entry["tasks"] if one["task"] == task]
    return one, entry["protection"]


@pytest.mark.parametrize("language", SUBMITTED)
def test_in_a_sandbox_nothing_succeeds(language, names, outside, tmp_path):
    assert protection().sandbox != NONE, told()
    before = state(outside)
    task, ran_in = grade(tmp_path, language, names, "--untrusted")
    assert succeeded(language, task["message"]) == []
    assert (task["outcome"], ran_in) == ("failed", protection().sandbox)
    assert (state(outside), left_in_shared_memory(tmp_path)) == (before, [])


@pytest.mark.skipif(sys.platform == "darwin", reason="system calls are filtered on Linux only")
@pytest.mark.parametrize("language", SUBMITTED)
def test_without_one_files_are_read_and_nothing_else_happens(language, names, outside, tmp_path):
    before = state(outside)
    task, ran_in = grade(tmp_path, language, names, **without_sandbox(tmp_path))
    reads = [name for name in succeeded(language, task["message"]) if name.startswith("reads: ")]
    assert reads == succeeded(language, task["message"])
    assert {"reads: other_submission", "reads: secret"} <= set(reads) < set(ATTACKS[language])
    assert (task["outcome"], ran_in) == ("failed", NONE)
    assert (state(outside), left_in_shared_memory(tmp_path)) == (before, [])


def left_in_shared_memory(tmp_path):
    """Return the objects in shared memory that an attack has named. Other processes may make and delete theirs."""
    return [file.name for file in Path("/dev/shm").glob(f"*{tmp_path.name}*")]


def without_sandbox(folder):
    """Return an environment in which bubblewrap does not work."""
    return {"PATH": f"{Path(script(folder, 'bwrap', 'exit 1')).parent}:{os.environ['PATH']}"}


def processes(temporary):
    """Return the names and commands of the processes of a `grade`, all of which name this temporary folder."""
    shown = subprocess.check_output(["ps", "-wweo", "comm,args"], text=True)
    return [line for line in shown.splitlines() if str(temporary) in line]


def assert_nothing_left(temporary):
    """Check that no process, and so no socket, and no file is left."""
    until(lambda: not processes(temporary), 120, told=lambda: processes(temporary))
    assert {file.name for file in temporary.iterdir()} <= {"mlx"}  # where the judge's MLX compiles


@pytest.mark.skipif(sys.platform == "darwin", reason="prctl is Linux's")
@pytest.mark.parametrize("environment", [lambda folder: {}, without_sandbox], ids=["in a sandbox", "without one"])
@pytest.mark.parametrize("ended", ["the command", "the judge"])
def test_no_process_outlives_its_judge(tmp_path, environment, ended):
    """Ctrl-C ends the judge, or a system without free memory kills it."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    package(tmp_path / "hostile" / "tiny_llm", layer_norm=STAYS)
    words = [str(tmp_path / "hostile"), "--week", "1", "--day", "4", "--patience", "600", "--fresh"]
    environment = os.environ | {"TMPDIR": str(temporary)} | environment(tmp_path)
    with subprocess.Popen([*GRADE, *words], stdout=subprocess.PIPE, preexec_fn=restore_ctrl_c, env=environment) as run:
        until(lambda: any(line.startswith("stays ") for line in processes(temporary)), 120)
        if ended == "the command":
            run.send_signal(signal.SIGINT)
        else:
            [judge] = subprocess.check_output(["pgrep", "-f", f"pytest .*--submission={temporary}"]).split()
            os.kill(int(judge), signal.SIGKILL)
        run.communicate()
    assert_nothing_left(temporary)
