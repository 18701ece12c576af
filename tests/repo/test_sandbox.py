"""The sandbox of `tiny-llm grade`: the files in it, wherever Python is, and the command's messages about it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from building import script

from tiny_llm_course.base.places import ROOT, SRC
from tiny_llm_course.grading import protection as module
from tiny_llm_course.grading.protection import protection, told
from tiny_llm_course.grading.sandbox import HIDDEN, NONE, wrapped
from tiny_llm_course.native.mlx_extension import system_command

on_linux = pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has sandbox-exec")
OPEN = """
import sys
for file in sys.argv[2:]:
    try:
        open(file, sys.argv[1]).close()
        print(file)
    except OSError:
        pass
"""
LOOK = """
import os, sys
from tiny_llm_course.grading.sandbox import wrapped
code = "import sys, {module}; print(sys.prefix)"
os.execvp("bwrap", wrapped("bubblewrap", [sys.executable, "-c", code]))
"""


@pytest.fixture
def sandbox():
    assert protection().sandbox != NONE, told()
    return protection().sandbox


def run(sandbox, code, *arguments, reads=(), writes=()):
    command = wrapped(sandbox, [sys.executable, "-I", "-S", "-c", code, *map(str, arguments)], reads, writes)
    return subprocess.run(command, capture_output=True, text=True, cwd="/")


def test_what_it_shows(sandbox, tmp_path):
    """It shows the course's modules and the given files, but neither the solutions nor the files next to the given
    ones."""
    catalogue, built = HIDDEN
    (built / tmp_path.name).mkdir(parents=True)
    (built / tmp_path.name / "program").touch()
    for name in ("shown", "written", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    places = [SRC / "tiny_llm_course" / "syllabus.toml", *(tmp_path / name / "file" for name in ("shown", "written"))]
    hidden = [SRC / "tiny_llm_ref" / "basics.py", SRC / "tiny_llm" / "basics.py", tmp_path / "hidden" / "file"]
    hidden += [ROOT / "tests" / "oracles.py", ROOT / "pyproject.toml", catalogue / "week_1_day_1.toml"]
    hidden += [built / tmp_path.name / "program"]
    found = run(sandbox, OPEN, "r", *places, *hidden, reads=[tmp_path / "shown"], writes=[tmp_path / "written"])
    shutil.rmtree(built / tmp_path.name)
    assert found.stdout.split() == list(map(str, places)), found.stderr


@on_linux
def test_a_sandbox_that_shows_a_solution_is_none(monkeypatch):
    """Compiled kernels of the reference in it are a solution, for example."""
    shown = [SRC / "tiny_llm_course" / "grading"]
    monkeypatch.setattr(module, "UNSEEN", shown)
    assert module._probe(protection().sandbox) == f"AssertionError: {shown[0]} can be read in the sandbox"


def test_what_may_be_changed(sandbox, tmp_path):
    for name in ("shown", "written"):
        (tmp_path / name).mkdir()
    places = [tmp_path / "shown", tmp_path / "written", SRC / "tiny_llm_course", Path("/"), Path("/dev"), ROOT]
    places += [*HIDDEN, Path("/tmp"), Path.home(), Path(sys.prefix)]
    found = run(
        sandbox,
        OPEN,
        "w",
        *(place / "x" for place in places),
        reads=[tmp_path / "shown"],
        writes=[tmp_path / "written"],
    )
    assert found.stdout.split() == [str(tmp_path / "written" / "x")], found.stderr
    assert [file.parent.name for file in tmp_path.rglob("x")] == ["written"]


@on_linux
def test_settings_of_the_system_stay(sandbox):
    """Root owns them in the sandbox, too."""
    code = "import os\nos.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)"
    assert "Read-only file system" in run(sandbox, code).stderr or os.getuid()
    assert run(sandbox, code).returncode == 1


@on_linux
def test_a_python_behind_links_and_a_virtual_environment_elsewhere(sandbox, tmp_path):
    """uv and pyenv make such environments: their Python is a link to a link into a folder that is itself a link."""
    (tmp_path / "python").symlink_to(sys.base_prefix)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(tmp_path / "python" / "bin" / "python3")
    subprocess.run([tmp_path / "bin" / "python", "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    module = tmp_path / "venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "installed_here.py"
    module.write_text("")
    python = tmp_path / "venv" / "bin" / "python"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{SRC}:{tmp_path / 'needs'}"}
    (tmp_path / "needs").symlink_to(next(Path(path) for path in sys.path if path.endswith("site-packages")))
    code = LOOK.format(module="installed_here")
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, env=environment, cwd="/")
    assert found.stdout == f"{tmp_path / 'venv'}\n", found.stderr


def grade(folder, *options, **environment):
    command = [sys.executable, "-m", "tiny_llm_course", "grade", str(folder), "--week", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"} | environment)


@on_linux
def test_a_result_says_that_there_was_none_and_why(tmp_path):
    found = grade(tmp_path, PATH="/nowhere")
    assert found.returncode == 0, found.stderr
    to_install = f"to install it: `{system_command('bubblewrap')}`"
    said = f"There was no sandbox: bubblewrap is not installed ({to_install}). A submission could read"
    assert said in found.stdout
    assert grade(tmp_path, "--format", "csv", PATH="/nowhere").stderr.startswith("There was no sandbox: ")
    fails = script(tmp_path, "bwrap", "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")
    found = grade(tmp_path, "--untrusted", PATH=str(Path(fails).parent))
    assert found.returncode == 1
    assert found.stderr.startswith(
        "error: --untrusted: grading needs a sandbox, but there is none: bubblewrap does not work"
    )
    assert "setting up uid map: Permission denied" in found.stderr


@on_linux
def test_a_compiler_that_it_does_not_show(tmp_path, sandbox):
    """In this case, no sandbox is used, because otherwise kernels would not compile."""
    found = grade(tmp_path, "--untrusted", CXX=script(tmp_path, "c++", ""))
    assert f"{tmp_path / 'c++'} is not in the folders that the sandbox shows" in found.stderr
