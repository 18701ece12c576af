"""`tiny-llm build-ext`: a real build, and what is said and left behind when something is missing or goes wrong."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from learner import Clone

from tiny_llm_course import bridge
from tiny_llm_course.install import install_command
from tiny_llm_course.language import Messages
from tiny_llm_course.problems import CommandError

pytestmark = pytest.mark.xdist_group("build_ext")  # one build for all

KEPT = {"tiny_llm": ("bridge", "softmax", "swiglu"), "tiny_llm_ref": ("bridge", "swiglu")}  # the others take longer
COMPILER = shutil.which("c++") or shutil.which("clang++") or shutil.which("g++")
CURRENT = "The kernels' bridge to MLX is up to date.\n"
OPEN = "to be written: softmax (w2d2.2, w2d2.3, w2d2.4)\nto be written: swiglu (w2d5.3)\n"


@pytest.fixture(scope="session")
def first_build(tmp_path_factory):
    """A clone in which nothing was built, and what the command says."""
    clone = Clone.create(tmp_path_factory.mktemp("a clone") / "course")
    for package, kept in KEPT.items():
        shutil.rmtree(built(clone, package), ignore_errors=True)
        for file in (clone.root / "src" / package / "kernels").glob("*.cpp"):
            if file.stem not in kept:
                file.unlink()
    for name, age in {".bridge-ended": 4000, ".bridge-running": 0}.items():
        (built(clone) / name).mkdir(parents=True)
        os.utime(built(clone) / name, (time.time() - age,) * 2)
    return clone, clone.run("build-ext")


@pytest.fixture
def clone(first_build):
    """The clone with its bridge. What a test changes is put back."""
    clone, run = first_build
    assert run.returncode == 0, run.stderr
    folders = [clone.root / "src" / package for package in ("tiny_llm", "tiny_llm_ref", "tiny_llm_course")]
    for folder in folders:
        if not folder.with_suffix(".kept").exists():
            shutil.copytree(folder, folder.with_suffix(".kept"))
    yield clone
    for folder in folders:
        shutil.rmtree(folder)
        shutil.copytree(folder.with_suffix(".kept"), folder)


def built(clone, package="tiny_llm"):
    return clone.root / "src" / package / "kernels" / "built"


def made(clone, package="tiny_llm"):
    """What lies there, by name."""
    return {file.name: file.read_bytes() for file in built(clone, package).iterdir() if file.is_file()}


def outdate(clone, **stamp):
    """As if the bridge had been built for something else."""
    for package in KEPT:
        file = built(clone, package) / bridge.STAMP
        file.write_text(json.dumps(json.loads(file.read_text()) | stamp))


def script(folder, name, *lines):
    """A program of this name; returns where it is."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text("#!/bin/sh\n" + "".join(f"{line}\n" for line in lines))
    file.chmod(0o755)
    return str(file)


def path_with(clone, folder, code):
    """A path of Python's on which this code is run first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return os.pathsep.join([str(folder), str(clone.root / "src")])


def refused(run):
    """What a failing command says: in a few lines, none of them Python's."""
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert len(run.stderr.splitlines()) == 1
    return run.stderr


# ---------------------------------------------------------------------------------------------------- what is built


def test_the_first_build(first_build):
    clone, run = first_build
    assert run.returncode == 0, run.stderr
    building, tried, *rest = run.stdout.splitlines(keepends=True)
    assert building == "Building the kernels' bridge to MLX (once; less than a minute) ...\n"
    assert tried.startswith("Built in ")
    assert tried.endswith("it was tried, and works.\n")
    assert "".join(rest) == OPEN
    left = {file.name for file in built(clone).iterdir()}
    assert {name.partition(".")[0] for name in left} == {"", "_bridge", "bridge"}
    assert {name for name in left if name.startswith(".")} == {".bridge-running"}, "another build may be at work there"
    assert made(clone) == made(clone, "tiny_llm_ref"), "with it a learner's mistakes are named"


def test_what_is_built_is_not_built_again(clone):
    before = {file: file.stat().st_mtime_ns for file in built(clone).iterdir()}
    run = clone.run("build-ext", PATH="/nowhere")
    assert (run.returncode, run.stdout) == (0, CURRENT + OPEN)
    assert {file: file.stat().st_mtime_ns for file in built(clone).iterdir()} == before
    assert clone.run("build-ext", "--lang", "ja").stdout.startswith(
        "カーネルと MLX をつなぐ拡張モジュールは最新です。\n未実装: softmax（w2d2.2"
    )


@pytest.mark.parametrize("stamp", [{"mlx": "0.1"}, {"python": ".so"}, {"nanobind": "1.0"}, {"sources": ""}], ids=str)
def test_what_was_built_for_something_else_is_built_again(clone, stamp):
    outdate(clone, **stamp)
    assert "kernels need a C++ compiler" in refused(clone.run("build-ext", PATH="/nowhere"))


def test_changed_sources_are_built_again_and_others_are_not(clone):
    (clone.root / "src/tiny_llm/kernels/rows.h").write_text("// of a kernel\n")
    assert clone.run("build-ext", PATH="/nowhere").stdout.startswith(CURRENT)
    with (clone.root / "src/tiny_llm/kernels/pool.h").open("a") as file:
        file.write("// newer\n")
    assert "kernels need a C++ compiler" in refused(clone.run("build-ext", PATH="/nowhere"))


def test_the_other_packages_bridge_is_taken_where_the_sources_are_the_same(clone):
    shutil.rmtree(built(clone))
    run = clone.run("build-ext", PATH="/nowhere")
    assert "Building" not in run.stdout
    assert made(clone) == made(clone, "tiny_llm_ref")


def test_kernels_that_are_written_are_compiled(clone):
    clone.file("kernels/swiglu.cpp").write_text(clone.solved("kernels/swiglu.cpp", "w2d5.3"))
    run = clone.run("build-ext")
    assert run.stdout == CURRENT + "compiled: swiglu\n" + OPEN.splitlines(keepends=True)[0]
    [library] = built(clone).glob("swiglu-*.so")
    assert run.returncode == 0
    before = library.stat().st_mtime_ns
    assert "compiled: swiglu\n" in clone.run("build-ext").stdout
    assert library.stat().st_mtime_ns == before


def test_the_reference(clone):
    shutil.rmtree(built(clone))
    run = clone.run("build-ext", "--impl", "ref")
    assert (run.returncode, run.stdout) == (0, CURRENT + "compiled: swiglu\n")
    assert not built(clone).exists()
    assert clone.run("build-ext", "--impl", "yours").stderr == "error: --impl: expected one of ref, mine, got 'yours'\n"


def test_help(clone):
    shown = clone.run("build-ext", "--help").stdout
    assert "Build what kernels in C++ need (once), and compile those that are written." in shown
    assert "ref|mine" in shown


# --------------------------------------------------------------------------------------------------- what is missing


def test_no_compiler(clone):
    outdate(clone, mlx="0.1")
    said = refused(clone.run("build-ext", PATH="/nowhere"))
    assert said.startswith("error: kernels need a C++ compiler: none was found that works. Try: ")
    said = refused(clone.run("build-ext", CXX="nosuch -O2"))
    assert said.endswith("the environment's CXX names nosuch -O2, which does not work. Try: unset CXX\n")


def test_a_compiler_that_is_too_old(clone, tmp_path):
    outdate(clone, mlx="0.1")
    version = 'case "$*" in *--version*) echo "g++ 9.5.0"; exit;; esac'
    old = script(tmp_path, "c++", version, "echo 'kernel.h:70: error: _Float16 does not name a type' >&2; exit 1")
    said = refused(clone.run("build-ext", CXX=old))
    assert "g++ 9.5.0 does not compile C++20 with 16-bit floats, as GCC 12, Clang 16 and newer ones do" in said
    assert "(kernel.h:70: error: _Float16 does not name a type). Try: " in said


def test_a_compiler_that_fails_later(clone, tmp_path):
    outdate(clone, mlx="0.1")
    before = made(clone)
    answers = f'case "$*" in *--version*|*-fsyntax-only*) exec {COMPILER} "$@";; esac'
    broken = script(tmp_path, "c++", answers, "echo 'ld: error: cannot find -lstdc++' >&2; exit 1")
    said = refused(clone.run("build-ext", CXX=broken))
    log = ".tiny-llm/build-ext.log"
    assert said == (
        f"error: the bridge does not build: ld: error: cannot find -lstdc++ (the whole output is in {log})\n"
    )
    assert "CMakeTestCXXCompiler" in (clone.root / log).read_text()
    assert made(clone) == before


def test_what_cmake_says_is_found_below_its_first_line():
    said = (
        "-- Detecting\nCMake Error at cmake-4.4/Modules/CMakeTest.cmake:71 (find_package):\n  Could not find a file\n"
    )
    said += "\n    MLXConfig.cmake\n\n\n-- Configuring incomplete, errors occurred!\n"
    assert bridge._first_error(said) == "Could not find a file MLXConfig.cmake"
    assert bridge._first_error("") == "no output"


HIDDEN = """
from importlib import metadata
real = metadata.version
def version(name):
    if name in {names}:
        raise metadata.PackageNotFoundError(name)
    return real(name)
metadata.version = version
"""


@pytest.mark.parametrize("names", [["nanobind"], ["cmake", "ninja"]], ids=", ".join)
def test_missing_packages(clone, tmp_path, names):
    outdate(clone, mlx="0.1")
    path = path_with(clone, tmp_path / "site", HIDDEN.format(names=names))
    script(tmp_path / "bin", "c++", f'exec {COMPILER} "$@"')
    said = refused(clone.run("build-ext", PYTHONPATH=path, PATH=str(tmp_path / "bin")))
    assert said.startswith(f"error: kernels need {', '.join(names)}. To install: ")
    assert "install" in said.partition("To install: ")[2]


def test_without_nanobind_a_bridge_that_is_built_is_used(clone, tmp_path):
    """It is needed only to build."""
    path = path_with(clone, tmp_path / "site", HIDDEN.format(names=["nanobind"]))
    assert clone.run("build-ext", PYTHONPATH=path).stdout == CURRENT + OPEN


def test_how_packages_are_installed(tmp_path):
    """They come with the course, and no extra has them."""
    environment = tmp_path / ".venv"
    (environment / "bin").mkdir(parents=True)
    commands = [install_command("", tmp_path, environment)]
    (tmp_path / "pyproject.toml").touch()
    commands.append(install_command("", tmp_path, environment))
    (tmp_path / ".pdm-python").touch()
    commands.append(install_command("", tmp_path, environment))
    (environment / "bin" / "pdm").touch()
    commands.append(install_command("", tmp_path, environment))
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.9.1\n")
    commands.append(install_command("", tmp_path, environment))
    pdm = os.path.relpath(environment / "bin" / "pdm")
    assert commands == [
        *("pip install tiny-llm", "pip install -e .", "pdm install --prod", f"{pdm} install --prod"),
        "uv sync --inexact",
    ]


def test_missing_headers_of_python(clone, tmp_path):
    outdate(clone, mlx="0.1")
    code = "import sysconfig\nreal = sysconfig.get_path\n"
    code += "sysconfig.get_path = lambda name, *more: '/nowhere' if name == 'include' else real(name, *more)\n"
    said = refused(clone.run("build-ext", PYTHONPATH=path_with(clone, tmp_path / "site", code)))
    assert said.startswith("error: the bridge needs Python's header files (Python.h), and they are not installed.")


# ------------------------------------------------------------------------------------------------ what does not work


def test_another_abi_of_nanobind(clone):
    """With another domain, too, the extension does not know MLX's arrays: it builds, and its first call fails."""
    file = clone.root / "src/tiny_llm_course/bridge.cmake"
    source = file.read_text()
    assert "NB_DOMAIN mlx" in source
    file.write_text(source.replace("NB_DOMAIN mlx", "NB_DOMAIN another").replace("Release", "Debug"))
    before = made(clone)
    run = clone.run("build-ext")
    said = refused(run)
    assert "built in" not in run.stdout.lower()
    assert "does not fit MLX" in said
    assert "MLX was built with another ABI of nanobind (MLX 0.32: nanobind 3). To install the right one: " in said
    assert made(clone) == before
    assert [name for name in os.listdir(built(clone)) if name.startswith(".bridge-")] == [".bridge-running"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def copied(x):\n    return x + 1\n", "AssertionError: a kernel of the bridge gave a wrong result"),
        ("raise ImportError('undefined symbol: _ZN3mlx')\n", "ImportError: undefined symbol: _ZN3mlx"),
        ("import os\nos.abort()\n", "exit code -6"),
    ],
    ids=["wrong result", "does not load", "crashes"],
)
def test_an_operation_is_called_before_anything_is_said(clone, monkeypatch, source, said):
    outdate(clone, mlx="0.1")
    before, package, told = made(clone), clone.root / "src/tiny_llm", []
    monkeypatch.setattr(bridge, "_run_cmake", lambda kernels, folder, say: (folder / "_bridge.py").write_text(source))
    with pytest.raises(CommandError, match="the bridge was built, but does not work with MLX") as error:
        bridge.build([package], Messages("en"), told.append)
    assert said in str(error.value)
    assert len(told) == 1
    assert made(clone) == before


def test_a_kernel_that_does_not_compile(clone):
    file = clone.file("kernels/softmax.cpp")
    source = clone.solved("kernels/softmax.cpp", "w2d2.2").replace("float largest", "flaot largest", 1)
    assert "flaot" in source
    file.write_text(source)
    clone.file("kernels/swiglu.cpp").write_text(clone.solved("kernels/swiglu.cpp", "w2d5.3"))
    run = clone.run("build-ext")
    line = 1 + next(number for number, text in enumerate(source.splitlines()) if "flaot" in text)
    assert run.returncode == 1
    assert "compiled: swiglu\n" in run.stdout
    problem = run.stdout.partition("w2d2.4)\n")[2].splitlines()
    assert problem[0].startswith(f"src/tiny_llm/kernels/softmax.cpp:{line}: ")
    assert "flaot" in problem[0]
    assert problem[1].startswith("    flaot largest")
    assert len(problem) <= 7
    assert run.stderr == ""
    assert list(built(clone).glob("softmax-*.so")) == []


def test_markers_that_are_damaged(clone):
    file = clone.file("kernels/swiglu.cpp")
    file.write_text(file.read_text().replace("// task w2d5.3 end\n", ""))
    run = clone.run("build-ext")
    assert run.returncode == 1
    assert "src/tiny_llm/kernels/swiglu.cpp:" in run.stdout
    assert "`// task w2d5.3 begin` without its partner" in run.stdout


def without_roots_power():
    """Also root is told that it may not write, as anybody else."""
    drop, may_write_anything = 24, 1  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
    if sys.platform == "linux" and os.geteuid() == 0:
        ctypes.CDLL(None).prctl(drop, may_write_anything, 0, 0, 0)


def test_a_folder_that_is_read_only(clone):
    outdate(clone, mlx="0.1")
    before = made(clone)
    built(clone).chmod(0o555)
    command = [sys.executable, "-m", "tiny_llm_course", "build-ext"]
    run = subprocess.run(
        command,
        cwd=clone.root,
        env=clone.environment,
        preexec_fn=without_roots_power,
        capture_output=True,
        text=True,
    )
    built(clone).chmod(0o755)
    said = refused(run)
    assert str(built(clone)) in said
    assert said.endswith("Permission denied\n")
    assert made(clone) == before


def restore_ctrl_c():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("existed", [True, False], ids=["after another", "the first"])
def test_an_interrupted_build_leaves_what_was_there(clone, tmp_path, existed):
    outdate(clone, mlx="0.1")
    if not existed:
        shutil.rmtree(built(clone))
    before = made(clone) if existed else {}
    answers = f'case "$*" in *--version*|*-fsyntax-only*) exec {COMPILER} "$@";; esac'
    slow = script(tmp_path, "c++", answers, f"touch {tmp_path}/begun", "exec sleep 60")
    command = [sys.executable, "-m", "tiny_llm_course", "build-ext"]
    process = subprocess.Popen(
        command,
        cwd=clone.root,
        env=clone.environment | {"CXX": slow},
        preexec_fn=restore_ctrl_c,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < end
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert process.stderr.read() == "\ninterrupted\n"
    assert made(clone) == before
    assert sorted({file.name for file in built(clone).iterdir()} - before.keys()) == [".bridge-running"] * existed


def test_tests_of_a_kernel_say_what_their_bridge_needs(clone):
    """Nothing is built for a kernel that is still to be written."""
    for package in KEPT:
        shutil.rmtree(built(clone, package))
    arguments = ["test", "w2d5.3"]
    stub = clone.run(*arguments, PATH="/nowhere")
    assert "C++ compiler" not in stub.stdout
    assert "Week 2 Day 5 Task 3" in stub.stdout
    clone.file("kernels/swiglu.cpp").write_text(clone.solved("kernels/swiglu.cpp", "w2d5.3"))
    run = clone.run(*arguments, PATH="/nowhere")
    assert run.returncode == 1
    assert run.stdout.startswith("kernels need a C++ compiler: none was found that works. Try: ")
    assert "the kernels' bridge to MLX is not built; to build it: pdm run build-ext" in run.stdout
