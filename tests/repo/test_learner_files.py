"""A learner's files, when commands meet another indentation, a full disk, kills, or a second command."""

import errno
import fcntl
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from learner import Clone, commit, git, in_units, new_clone

from tiny_llm_course.learner.progress import Progress, without_change
from tiny_llm_course.tasks.splice import UnfitError, splice
from tiny_llm_course.tasks.syllabus import TaskId

original = pytest.fixture(new_clone, scope="module")


@pytest.fixture
def clone(original):
    """Begin with stubs, and without progress."""
    package = original.root / "src/tiny_llm"
    before = {file: file.read_bytes() for file in package.glob("*.py")}
    yield original
    for file, content in before.items():
        file.write_bytes(content)
    shutil.rmtree(original.root / ".tiny-llm", ignore_errors=True)
    (original.root / "progress.txt").unlink(missing_ok=True)


def python(clone, code, *arguments, **options):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=clone.root, env=clone.environment, capture_output=True, text=True, **options)


def state(clone):
    found = [
        *clone.root.glob("src/tiny_llm/**/*.py"),
        *clone.root.glob("src/tiny_llm/**/*.cpp"),
        *clone.root.glob("*.txt"),
    ]
    return {file: file.read_bytes() for file in found}


# The form of a file


@pytest.mark.parametrize("unit", ["\t", "  "])
def test_a_file_with_another_indentation(clone, unit):
    """The file has a function, methods, private helpers, and a class of the learner's own."""
    for name, task in (("attention.py", "w1d1.1"), ("layer_norm.py", "w1d4.1"), ("quantize.py", "w2d3.1")):
        file, stub = clone.file(name), in_units(clone.solved(name), unit)
        file.write_text(stub)
        done = clone.run("solution", task, "--apply")
        assert done.returncode == 0, done.stderr
        assert file.read_text() == in_units(clone.solved(name, task), unit)
        assert clone.run("reset", task).returncode == 0
        assert file.read_text() == stub
    assert clone.run("solution", "--day", "1.1").returncode == 0
    assert "\n    " not in clone.file("attention.py").read_text() or unit == "  "


def test_strings_keep_their_indentation():
    source = 'def f():\n    """Text:\n        more\n    """\n    return """\n    four\n"""\n'
    target = 'def f():\n\traise NotImplementedError("Week 1 Day 1 Task 1: f")\n'
    expected = 'def f():\n\t"""Text:\n\t\tmore\n\t"""\n\treturn """\n    four\n"""\n'
    assert splice(target, source, ["f"], "f.py") == expected


def test_what_would_not_be_python_is_not_written():
    target = "def f():\n    return 0\n\n\n_A = 1; B = (\n    2)\n"
    source = "def f():\n    return _A\n\n\n_A = 3\n"
    with pytest.raises(UnfitError, match=r"f.py:6: "):
        splice(target, source, ["f", "_A"], "f.py")


def test_a_byte_order_mark_stays(clone):
    file = clone.file("attention.py")
    file.write_text(clone.solved("attention.py", "w1d1.1"), encoding="utf-8-sig")
    for command in (["next"], ["solution", "w1d1.2"]):
        run = clone.run(*command)
        assert "SyntaxError" not in run.stdout + run.stderr
    for command in (["solution", "w1d3.1", "--apply"], ["reset", "w1d1.1"]):
        assert clone.run(*command).returncode == 0
    assert file.read_bytes().decode() == "\ufeff" + clone.solved("attention.py", "w1d3.1")
    assert clone.run("undo").returncode == 0
    assert file.read_bytes().decode() == "\ufeff" + clone.solved("attention.py", "w1d1.1", "w1d3.1")
    assert clone.run("test", "w1d1.1").returncode == 0


# A full disk

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv[1:2] = []
from tiny_llm_course.__main__ import main
main()
"""


@pytest.mark.parametrize("size", [0, 300, 5000])
@pytest.mark.parametrize("command", [["solution", "w1d1.2", "--apply"], ["reset", "w1d1.1"], ["undo"]], ids=" ".join)
def test_no_room_for_what_is_to_be_written(clone, command, size):
    """The system refuses the last bytes of a file, here because of a limit on the file's size."""
    assert clone.run("solution", "w1d1.1", "--apply").returncode == 0
    before = state(clone)
    run = python(clone, LIMITED, str(size), *command)
    assert run.returncode == 1
    assert "the file would be larger than this system allows (ulimit -f); nothing was changed" in run.stderr
    assert "Traceback" not in run.stderr
    assert state(clone) == before
    assert not list(clone.root.glob("src/**/.*.tmp"))
    assert clone.run(*command).returncode == 0
    assert state(clone) != before


# A kill

REPLACED = """
import os, signal
from tiny_llm_course.learner import backups
from tiny_llm_course.learner.solution_commands import solution

replace = os.replace

def killed(old, new):
    if str(new).endswith("attention.py"):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(old, new)

backups.os.replace = killed
solution("w1d1.2", apply=True)
"""


def test_the_next_command_takes_back_what_was_interrupted(clone):
    before = state(clone)
    assert python(clone, REPLACED).returncode == -signal.SIGKILL
    assert state(clone) != before, "basics.py was written, attention.py was not"
    run = clone.run("next")
    assert (
        "an earlier command was interrupted while it wrote files. Its changes were taken back: the solution of w1d1.2. "
        in run.stderr
    )
    assert run.stdout.startswith("next: ")
    assert state(clone) == before
    assert clone.run("undo").stdout == "There is nothing to undo.\n"


# Two commands at once

HOLDING = """
import sys
from tiny_llm_course.learner.workspace import changing
with changing("update"):
    print("held", flush=True)
    sys.stdin.readline()
"""
IMPATIENT = """
from tiny_llm_course.learner import lock
lock.SILENCE, lock.PATIENCE = 0.0, float(PATIENCE)
from tiny_llm_course.__main__ import main
main()
"""


@pytest.fixture
def holder(clone):
    """Start a process that holds the lock until its input ends."""
    command = [sys.executable, "-c", HOLDING]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=clone.root, env=clone.environment, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_command_waits_and_says_for_whom(clone, holder):
    command = [sys.executable, "-c", IMPATIENT.replace("PATIENCE)", "600)"), "solution", "w1d1.1", "--apply"]
    with subprocess.Popen(
        command, cwd=clone.root, env=clone.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as second:
        assert second.stderr.readline() == f"waiting for ./course update (process {holder.pid}) …\n"
        assert clone.file("attention.py").read_text() == clone.solved("attention.py")
        holder.stdin.close()
        out, _ = second.communicate(timeout=600)
    assert "wrote src/tiny_llm/attention.py" in out
    assert clone.file("attention.py").read_text() == clone.solved("attention.py", "w1d1.1")


def test_a_command_that_waits_too_long_ends(clone, holder):
    before = state(clone)
    run = python(clone, IMPATIENT.replace("PATIENCE)", "0)"), "reset", "w1d1.1")
    assert run.returncode == 1
    assert f"./course update (process {holder.pid}) has been changing your files for 0 seconds" in run.stderr
    assert state(clone) == before
    assert clone.run("next").returncode == 0, "what only reads does not wait"


def test_a_lock_ends_with_its_process(clone, holder):
    holder.kill()
    holder.wait()
    assert (clone.root / ".tiny-llm/lock").exists()
    run = clone.run("solution", "w1d1.1", "--apply")
    assert run.returncode == 0
    assert "waiting" not in run.stderr


def test_a_system_without_locks(clone, monkeypatch):
    """Commands work as if no other command ran."""

    def refuse(file, operation):
        raise OSError(errno.ENOLCK, "no locks")

    from tiny_llm_course.learner import lock

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock.locked(clone.root / ".tiny-llm/lock", "test"):
        pass
    with lock.locked(clone.root / "pyproject.toml/lock", "test"):  # a file that cannot be made
        pass


# progress.txt

T1, T2, T3 = (TaskId(1, 1, number) for number in (1, 2, 3))


def test_undo_brings_back_the_line_of_its_task_and_leaves_others(clone):
    """A solved task was reset, and another task has been solved since."""
    progress = clone.root / "progress.txt"
    progress.write_text("w1d1.1 solved\nw1d4.1 solved\n")
    clone.file("attention.py").write_text(clone.solved("attention.py", "w1d1.1"))
    assert clone.run("reset", "w1d1.1").returncode == 0
    assert "w1d1.1" not in progress.read_text()
    progress.write_text(progress.read_text() + "w1d1.2 solved\n")
    assert clone.run("undo").returncode == 0
    assert sorted(progress.read_text().splitlines()) == ["w1d1.1 solved", "w1d1.2 solved", "w1d4.1 solved"]


@pytest.mark.parametrize(
    ("now", "after", "before", "expected"),
    [
        ("a\nw1d1.1 skipped\n", "a\nw1d1.1 skipped\n", "a\n", "a\n"),
        ("w1d1.1 skipped\nw1d1.2 solved\n", "w1d1.1 skipped\n", "", "w1d1.2 solved\n"),
        ("w1d1.1 solved\n", "w1d1.1 skipped\n", "", "w1d1.1 solved\n"),
        ("w1d1.2 solved\n", "", "w1d1.1 solved by Ann\n", "w1d1.2 solved\nw1d1.1 solved by Ann\n"),
        ("path core\nw1d1.1 skipped\n", "w1d1.1 skipped\n", "w1d1.1 solved\n", "path core\nw1d1.1 solved\n"),
    ],
)
def test_taking_back_a_change_of_the_progress(now, after, before, expected):
    assert without_change(now.encode(), after.encode(), before.encode()).decode() == expected


def test_lines_in_other_encodings_stay(tmp_path):
    file = tmp_path / "progress.txt"
    file.write_bytes(b"\xef\xbb\xbfw1d1.1 solved\nJ\xfcrgen\n")
    progress = Progress(file)
    assert progress.state(T1) == "solved"
    progress.set({T2: "solved"})
    assert file.read_bytes().splitlines()[2:] == [b"w1d1.1 solved", b"J\xfcrgen", b"w1d1.2 solved"]


@pytest.mark.parametrize("sequences", [6, pytest.param(300, marks=pytest.mark.nightly("takes minutes"))])
def test_nothing_is_ever_lost(tmp_path, sequences):
    """Run random sequences of commands and edits, with two commands at once and with kills."""
    published = Clone.create(tmp_path / "published")
    git(published.root, "init", "--quiet")
    commit(published, "first")
    git(tmp_path, "clone", "--quiet", "published", "course")
    clone, script = Clone(tmp_path / "course"), Path(__file__).with_name("random_commands.py")
    seed = str(random.SystemRandom().randrange(10**6))
    command = [sys.executable, str(script), str(sequences), seed]
    run = subprocess.run(command, cwd=clone.root, env=clone.environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert f"{sequences} sequences of seed {seed}, nothing lost" in run.stdout
    print(run.stdout)
