"""`tiny-llm build-ext`: a real build, when the build is repeated, and the messages when something is missing."""

import re

import pytest
from building import COMPILER, as_built, built, first_build, old_compiler, outdate, path_without, refused, script

from tiny_llm_course.native import mlx_extension
from tiny_llm_course.ui.errors import CommandError
from tiny_llm_course.ui.language import Messages

CURRENT = "The MLX extension is up to date.\n"
OPEN = "to be written: softmax (w2d2.2, w2d2.3, w2d2.4)\nto be written: swiglu (w2d5.3)\n"


@pytest.fixture
def clone(tmp_path_factory):
    with as_built(tmp_path_factory) as clone:
        yield clone


def test_the_first_build(tmp_path_factory):
    clone, run = first_build(tmp_path_factory.getbasetemp() / "built")
    assert run.returncode == 0, run.stderr
    building, tried, *rest = run.stdout.splitlines(keepends=True)
    assert building == "Building the MLX extension (once; about a minute) ...\n"
    assert tried.startswith("Built in ")
    assert tried.endswith("a test call worked.\n")
    assert "".join(rest) == OPEN
    left = {file.name for file in built(clone).iterdir()}
    assert {name.partition(".")[0] for name in left} == {"", *mlx_extension.NAMES, "mlx_extension"}
    assert {name for name in left if name.startswith(".")} == {".mlx_extension-running"}, (
        "another build may be at work there"
    )
    assert not any(built(clone, package).exists() for package in ("tiny_llm", "tiny_llm_ref")), "there is one"


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
    (clone.root / "src/tiny_llm_native/rows.h").write_text("// of a kernel\n")
    assert clone.run("build-ext", PATH="/nowhere").stdout.startswith(CURRENT)
    with (clone.root / "src/tiny_llm_native/pool.h").open("a") as file:
        file.write("// newer\n")
    assert "kernels need a C++ compiler" in refused(clone.run("build-ext", PATH="/nowhere"))


def test_kernels_that_are_written_are_compiled(clone):
    clone.file("kernels/swiglu.cpp").write_text(clone.solved("kernels/swiglu.cpp", "w2d5.3"))
    run = clone.run("build-ext")
    expected = CURRENT + "compiled: swiglu\nCompiling the kernels took N s.\n" + OPEN.splitlines(keepends=True)[0]
    assert re.sub(r"\d+ s\.", "N s.", run.stdout) == expected
    [library] = built(clone, "tiny_llm").glob("swiglu-*.so")
    assert run.returncode == 0
    before = library.stat().st_mtime_ns
    assert "compiled: swiglu\n" in clone.run("build-ext").stdout
    assert library.stat().st_mtime_ns == before


def test_the_reference(clone):
    run = clone.run("build-ext", "--impl", "ref")
    assert (run.returncode, run.stdout[: len(CURRENT)]) == (0, CURRENT), "one MLX extension serves both packages"
    assert run.stdout.splitlines()[1] == "compiled: swiglu"
    assert not built(clone, "tiny_llm").exists()
    assert clone.run("build-ext", "--impl", "yours").stderr == "error: --impl: expected one of ref, mine, got 'yours'\n"


def test_help(clone):
    shown = clone.run("build-ext", "--help").stdout
    assert "Build the MLX extension (once), and compile the C++ kernels that are no longer stubs." in shown
    assert "ref|mine" in shown


# --------------------------------------------------------------------------------------------------- what is missing


def test_no_compiler(clone):
    outdate(clone, mlx="0.1")
    said = refused(clone.run("build-ext", PATH="/nowhere"))
    assert said.startswith("error: kernels need a C++ compiler: no working compiler was found. Try: ")
    said = refused(clone.run("build-ext", CXX="nosuch -O2"))
    assert said.endswith("the environment variable CXX names nosuch -O2, which does not work. Try: unset CXX\n")


def test_a_compiler_that_is_too_old(clone, tmp_path):
    outdate(clone, mlx="0.1")
    said = refused(clone.run("build-ext", CXX=old_compiler(tmp_path)))
    assert "g++ 9.5.0 does not compile C++20 with 16-bit floats; you need GCC 12, Clang 16 or newer" in said
    assert "(kernel.h:70: error: _Float16 does not name a type). Try: " in said


@pytest.mark.parametrize("names", [["nanobind"], ["cmake", "ninja"]], ids=", ".join)
def test_missing_packages(clone, tmp_path, names):
    outdate(clone, mlx="0.1")
    path = path_without(clone, tmp_path / "site", names)
    script(tmp_path / "bin", "c++", f'exec {COMPILER} "$@"')
    said = refused(clone.run("build-ext", PYTHONPATH=path, PATH=str(tmp_path / "bin")))
    assert said.startswith(f"error: kernels need {', '.join(names)}. To install: ")
    assert "install" in said.partition("To install: ")[2]


def test_without_nanobind_an_mlx_extension_that_is_built_is_used(clone, tmp_path):
    """nanobind is needed only for the build."""
    path = path_without(clone, tmp_path / "site", ["nanobind"])
    assert clone.run("build-ext", PYTHONPATH=path).stdout == CURRENT + OPEN


@pytest.mark.parametrize("sign", [";", '"'])
def test_a_folder_that_cmake_cannot_build_in(sign, tmp_path):
    native = tmp_path / f"my{sign}course" / "src" / "tiny_llm_native"
    with pytest.raises(CommandError) as raised:
        mlx_extension.build(native, Messages("en"), print)
    assert f"whose name contains {sign}: {tmp_path}/my{sign}course. Rename the folder" in str(raised.value)


def test_missing_headers_of_python(clone, tmp_path):
    outdate(clone, mlx="0.1")
    said = refused(clone.run("build-ext", PYTHONPATH=path_without(clone, tmp_path / "site", ["Python.h"])))
    assert said.startswith(
        "error: the MLX extension needs Python's header files (Python.h), and they are not installed."
    )
