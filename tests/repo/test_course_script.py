"""./course: its messages when something is missing, the installation, and the programs that it calls. .ci/run tests a
real installation. These tests replace PDM, so they need no network."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def clone(tmp_path):
    """Return a clone with a space in its path. Its Python, PDM and tiny-llm only print how they were called."""
    folder = tmp_path / "my course"
    folder.mkdir()
    for name in ("course", "pyproject.toml", "pdm.lock"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture
def path(tmp_path):
    """Return a folder of programs, which is all that the script finds apart from the system's programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "dirname", "cat", "cmp", "ln", "mkdir", "printf", "echo", "chmod", "readlink"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def program(path, name, script):
    path.mkdir(parents=True, exist_ok=True)
    file = path / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def course(clone, path, *arguments, cwd=None, **env):
    return subprocess.run(
        [str(clone / "course"), *arguments],
        cwd=cwd,
        env={"PATH": str(path), "HOME": str(clone), **env},
        capture_output=True,
        text=True,
        timeout=600,
    )


# A Python that makes virtual environments. Their `python` prints its arguments and the variables for PDM, and fails
# if the variable FAILS is set. Their `tiny-llm` prints how and where it was called.
GOOD_PYTHON = """
case "$1 $2" in
"-m venv")
    mkdir -p "$4/bin"
    echo '#!/bin/sh' > "$4/bin/python"
    echo '[ "$1" = -c ] && exit' >> "$4/bin/python"
    echo 'echo "$PDM_PYTHON|$PDM_PROJECT|$*|$HOME|${PYTHONPATH-}" >&2; exit ${FAILS:-0}' >> "$4/bin/python"
    echo '#!/bin/sh' > "$4/bin/tiny-llm"
    echo 'echo "tiny-llm: $*"; echo "$TINY_LLM_CALLED in $PWD with ${PATH%%:*}"' >> "$4/bin/tiny-llm"
    chmod +x "$4/bin/python" "$4/bin/tiny-llm" ;;
esac
"""


def test_python_too_old(clone, path):
    program(path, "python3", 'case "$1" in --version) echo Python 3.9.6 ;; *) exit 1 ;; esac')
    result = course(clone, path, "main")
    assert result.returncode == 1
    assert result.stderr == "course: Python 3.10 or newer is needed; found: Python 3.9.6\n"


def test_no_python(clone, path):
    result = course(clone, path, "main")
    assert result.returncode == 1
    assert result.stderr == "course: Python 3.10 or newer is needed; found: none\n"


def test_a_newer_python_beside_an_old_one_is_found(clone, path):
    program(path, "python3", "exit 1")
    program(path, "python3.12", GOOD_PYTHON)
    assert course(clone, path, "main").returncode == 0


def test_the_python_that_is_asked_for(clone, path):
    program(path, "python3", GOOD_PYTHON)
    result = course(clone, path, "main", PYTHON="python2")
    assert result.returncode == 1
    assert "needed, but PYTHON=python2 is not" in result.stderr


def test_no_venv_module(clone, path):
    program(path, "python3", 'case "$2" in "import venv, ensurepip") exit 1 ;; esac')
    result = course(clone, path, "main")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "python3 has no venv module; on Debian and Ubuntu: sudo apt install python3-venv" in result.stderr


def test_installs_once_and_calls_tiny_llm(clone, path, tmp_path):
    program(path, "python3", GOOD_PYTHON)
    arguments = ["test", "--week", "1", "--", "-k", "a b"]
    first = course(clone, path, *arguments, cwd=tmp_path)
    assert first.returncode == 0
    assert "-m pip install" in first.stderr
    assert "pdm[locked]" in first.stderr
    assert "-m pdm install --frozen-lockfile --prod -G kernels|" in first.stderr
    second = course(clone, path, *arguments, cwd=tmp_path)
    assert second.stderr == ""
    assert second.stdout.splitlines() == [
        "tiny-llm: test --week 1 -- -k a b",
        f"{clone}/course in {tmp_path} with {clone}/.venv/bin",
    ]
    (clone / "pdm.lock").write_text("another lock")
    assert "-m pdm install" in course(clone, path, "main").stderr, "a new lock is to be installed"


def test_an_interrupted_installation_is_taken_up_again(clone, path):
    program(path, "python3", GOOD_PYTHON)
    assert course(clone, path, "main", FAILS="3").returncode == 3
    assert not (clone / ".venv" / "installed-for").exists()
    assert "-m pip install" in course(clone, path, "main", FAILS="0").stderr


def test_an_installation_whose_python_is_gone_is_made_anew(clone, path):
    program(path, "python3", GOOD_PYTHON)
    assert course(clone, path, "main").returncode == 0
    for python in (clone / ".venv" / "bin" / "python", clone / ".venv" / "pdm" / "bin" / "python"):
        python.write_text("#!/nowhere/python\n")
    result = course(clone, path, "main")
    assert result.returncode == 0
    assert "-m pip install" in result.stderr


def test_without_arguments_it_lists_the_commands(clone, path):
    program(path, "python3", GOOD_PYTHON)
    assert course(clone, path).stdout.startswith("tiny-llm: --help\n")


def test_python_is_called_directly(clone, path):
    program(path, "python3", GOOD_PYTHON)
    assert course(clone, path, "next").returncode == 0
    result = course(clone, path, "python", "my file.py", "-v")
    assert (result.stdout, result.stderr) == ("", f"{clone}/.venv/bin/python|{clone}|my file.py -v|{clone}|\n")


def test_what_was_installed_besides_is_installed_again_with_a_new_lock(clone, path):
    program(path, "python3", GOOD_PYTHON)
    assert course(clone, path, "next").returncode == 0
    (clone / ".venv" / "options").write_text("--prod -G kernels -G serve\n")
    (clone / "pdm.lock").write_text("another lock")
    assert "-m pdm install --frozen-lockfile --prod -G kernels -G serve|" in course(clone, path, "next").stderr


@pytest.mark.parametrize("is_relative", [False, True])
def test_through_a_link(clone, path, tmp_path, is_relative):
    program(path, "python3", GOOD_PYTHON)
    (tmp_path / "links").mkdir()
    target = "../my course/course" if is_relative else clone / "course"
    (tmp_path / "links" / "one").symlink_to(target)
    (tmp_path / "links" / "two").symlink_to("one")
    result = subprocess.run(
        [tmp_path / "links" / "two", "next"],
        env={"PATH": str(path), "HOME": str(clone)},
        capture_output=True,
        text=True,
    )
    assert result.stdout.splitlines()[0] == "tiny-llm: next", result.stderr
    assert f"|{clone}|-m pdm install" in result.stderr


def test_the_path_of_another_clone_is_ignored(clone, path):
    program(path, "python3", GOOD_PYTHON)
    result = course(clone, path, "python", "file.py", PYTHONPATH="/elsewhere")
    assert f"|file.py|{clone}|\n" in result.stderr
    assert "elsewhere" not in result.stderr


def test_a_home_that_cannot_be_written_to(clone, path):
    """PDM and pip keep files there. The installation gets another home directory, but commands do not."""
    program(path, "python3", GOOD_PYTHON)
    result = course(clone, path, "python", "file.py", HOME="/nowhere")
    assert f"-m pdm install --frozen-lockfile --prod -G kernels|{clone}/.venv/home|\n" in result.stderr
    assert "|file.py|/nowhere|\n" in result.stderr


@pytest.mark.parametrize("name", ["a:b", "a;b", 'a"b'])
def test_a_folder_that_cannot_be_installed_in(clone, path, name):
    program(path, "python3", GOOD_PYTHON)
    folder = clone.rename(clone.parent / name)
    result = course(folder, path, "next")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"course: the folder {folder} has a ")
    assert result.stderr.endswith("rename the folder\n")
    assert not (folder / ".venv").exists()


def test_is_plain_posix_sh():
    """dash, the sh of Debian and Ubuntu, knows nothing of bash's extensions."""
    shell = shutil.which("dash") or shutil.which("sh")
    subprocess.run([shell, "-n", str(ROOT / "course")], check=True)
    assert os.access(ROOT / "course", os.X_OK)
