"""`tiny-llm build-ext` when compilers, nanobind, kernels or folders do not work, and when it is interrupted."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from building import COMPILER, as_built, built, made, outdate, refused, stopped_compiler
from waiting import restore_ctrl_c, until

from tiny_llm_course.native import mlx_extension
from tiny_llm_course.ui.errors import CommandError
from tiny_llm_course.ui.language import Messages
from tiny_llm_native.compiler import CompileError, compile_kernels


@pytest.fixture
def clone(tmp_path_factory):
    with as_built(tmp_path_factory) as clone:
        yield clone


def test_a_compiler_that_fails_later(clone, tmp_path):
    outdate(clone, mlx="0.1")
    before = made(clone)
    broken = stopped_compiler(tmp_path, "echo 'ld: error: cannot find -lstdc++' >&2; exit 1")
    said = refused(clone.run("build-ext", CXX=broken))
    log = ".tiny-llm/build-ext.log"
    assert said == (
        f"error: the MLX extension does not build: ld: error: cannot find -lstdc++ (the whole output is in {log})\n"
    )
    assert "CMakeTestCXXCompiler" in (clone.root / log).read_text()
    assert made(clone) == before


def test_what_cmake_says_is_found_below_its_first_line():
    said = (
        "-- Detecting\nCMake Error at cmake-4.4/Modules/CMakeTest.cmake:71 (find_package):\n  Could not find a file\n"
    )
    said += "\n    MLXConfig.cmake\n\n\n-- Configuring incomplete, errors occurred!\n"
    assert mlx_extension._first_error(said) == "Could not find a file MLXConfig.cmake"
    assert mlx_extension._first_error("") == "no output"


def test_another_abi_of_nanobind(clone, monkeypatch):
    """The extension builds, but does not recognise MLX's arrays: its first call fails."""
    sources = {}
    for file in built(clone).glob("_mlx_extension*"):
        of_version_9 = re.subn(rb"(nanobind_\w+_a\d+_v)\d", rb"\g<1>9", file.read_bytes())
        sources[file.name], count = of_version_9
        assert count == 1

    def made_with_another_nanobind(kernels, folder, say):
        for name, source in sources.items():
            (folder / name).write_bytes(source)
            if sys.platform == "darwin":  # which ends processes that load what was changed
                subprocess.run(["codesign", "-f", "-s", "-", folder / name], check=True)

    outdate(clone, mlx="0.1")
    before, told = made(clone), []
    monkeypatch.setattr(mlx_extension, "_run_cmake", made_with_another_nanobind)
    with pytest.raises(CommandError, match="does not match MLX") as error:
        mlx_extension.build(built(clone).parent, Messages("en"), told.append)
    said = str(error.value)
    assert "MLX was built with another ABI of nanobind (MLX 0.32.3 and later: nanobind 3). To install" in said
    assert len(told) == 1
    assert made(clone) == before
    assert [name for name in os.listdir(built(clone)) if name.startswith(".mlx_extension-")] == [
        ".mlx_extension-running"
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def copied(x):\n    return x + 1\n", "AssertionError: a kernel of the MLX extension gave a wrong result"),
        ("raise ImportError('undefined symbol: _ZN3mlx')\n", "ImportError: undefined symbol: _ZN3mlx"),
        ("import os\nos.abort()\n", "exit code -6"),
    ],
    ids=["wrong result", "does not load", "crashes"],
)
def test_an_operation_is_called_before_anything_is_said(clone, monkeypatch, source, said):
    outdate(clone, mlx="0.1")
    before, told = made(clone), []

    def made_so(kernels, folder, say):
        for name in mlx_extension.NAMES:
            (folder / f"{name}.py").write_text(source)

    monkeypatch.setattr(mlx_extension, "_run_cmake", made_so)
    with pytest.raises(CommandError, match="the MLX extension was built, but does not work with MLX") as error:
        mlx_extension.build(built(clone).parent, Messages("en"), told.append)
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
    assert "softmax does not compile" in run.stderr
    assert list(built(clone, "tiny_llm").glob("softmax-*.so")) == []


COMPILERS = [COMPILER, *filter(None, map(shutil.which, ("clang++", "clang++-16")))]
ADVICE = {
    "x[0] = std::max(x[0], x[1]);": "'std': add `#include <algorithm>` at the top of the file",
    "std::vector<float> y(3);": "'std': add `#include <vector>` at the top of the file",
    "x[0] = std::exp(x[1]);": "'std': add `#include <cmath>` at the top of the file",
}
CONVERT = {
    "std::max(1.f, x[0])": "are float and bfloat16, and must have the same type; convert one, as in float(x)",
    "std::min(n, 4)": "are int64_t and int, and must have the same type; convert one, as in int64_t(x)",
}


def problem_of(tmp_path, monkeypatch, compiler, lines, include=""):
    """Return the message about lines of a kernel that do not compile."""
    file = tmp_path / "wrong.cpp"
    body = f"template <typename T> void row(T* x, int64_t n) {{\n{lines}\n}}"
    kernel = "KERNEL(wrong) { tiny_llm::row(call.out[0].as<tiny_llm::bfloat16>(), 3); }\n"
    file.write_text(f'{include}#include "vector.h"\nnamespace tiny_llm {{\n{body}\n}}\n{kernel}')
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(CompileError) as error:
        compile_kernels(file, built=tmp_path / "built")
    return str(error.value).splitlines()[0]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("line", ADVICE)
def test_a_header_that_is_missing_is_named(tmp_path, monkeypatch, compiler, line):
    """GCC's note names some headers; for std::max it suggests our own function instead. Clang names no header."""
    said = problem_of(tmp_path, monkeypatch, compiler, line.replace("exp(x[1])", "exp(float(x[1]))"))
    assert said.endswith(ADVICE[line])


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("call", CONVERT)
def test_arguments_of_two_types_are_told_apart(tmp_path, monkeypatch, compiler, call):
    said = problem_of(tmp_path, monkeypatch, compiler, f"x[0] = {call};", include="#include <algorithm>\n")
    assert said.endswith(CONVERT[call])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)\n", "exit code 3"),
    ],
    ids=["syntax error", "no word"],
)
def test_what_compiles_kernels_does_not_work(clone, source, said):
    built(clone).with_name("compiler.py").write_text(source)
    clone.file("kernels/swiglu.cpp").write_text(clone.solved("kernels/swiglu.cpp", "w2d5.3"))
    assert refused(clone.run("build-ext")) == f"error: src/tiny_llm/kernels: {said}\n"


def test_markers_that_are_damaged(clone):
    file = clone.file("kernels/swiglu.cpp")
    file.write_text(file.read_text().replace("// task w2d5.3 end\n", ""))
    run = clone.run("build-ext")
    assert run.returncode == 1
    assert "src/tiny_llm/kernels/swiglu.cpp:" in run.stdout
    assert "`// task w2d5.3 begin` without its partner" in run.stdout


def without_roots_power():
    """Take root's right to write anywhere, so that root, too, is refused."""
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
    assert said.endswith("permission denied\n")
    assert made(clone) == before


@pytest.mark.parametrize("existed", [True, False], ids=["after another", "the first"])
def test_an_interrupted_build_leaves_what_was_there(clone, tmp_path, existed):
    outdate(clone, mlx="0.1")
    if not existed:
        shutil.rmtree(built(clone))
    before = made(clone) if existed else {}
    slow = stopped_compiler(tmp_path, f"touch {tmp_path}/begun", "exec sleep 60")
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
    until(lambda: (tmp_path / "begun").exists() or process.poll() is not None)
    assert process.poll() is None, process.stderr.read()
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=600) == 130
    assert process.stderr.read() == "\ninterrupted\n"
    assert made(clone) == before
    assert (
        sorted({file.name for file in built(clone).iterdir()} - before.keys()) == [".mlx_extension-running"] * existed
    )


def test_tests_of_a_kernel_say_what_their_mlx_extension_needs(clone):
    """Nothing is built for a kernel that is not written yet."""
    shutil.rmtree(built(clone))
    arguments = ["test", "w2d5.3"]
    stub = clone.run(*arguments, PATH="/nowhere")
    assert "C++ compiler" not in stub.stdout
    assert "Week 2 Day 5 Task 3" in stub.stdout
    clone.file("kernels/swiglu.cpp").write_text(clone.solved("kernels/swiglu.cpp", "w2d5.3"))
    run = clone.run(*arguments, PATH="/nowhere")
    assert run.returncode == 1
    assert run.stdout.startswith("kernels need a C++ compiler: no working compiler was found. Try: ")
    assert "the MLX extension is not built; to build it: ./course build-ext" in run.stdout
