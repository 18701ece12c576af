"""`tiny-llm doctor`: its findings, in words and as JSON, and its messages when something is wrong."""

import json
import os
import shutil
import sys

import pytest
from building import built, old_compiler, path_without, script
from learner import new_clone

from tiny_llm_course.native import mlx_extension
from tiny_llm_course.tasks.syllabus import tasks, weeks

clone = pytest.fixture(new_clone, scope="module")


def checks(clone, **environment):
    result = clone.run("doctor", "--json", **environment)
    found = json.loads(result.stdout)
    return result.returncode, {check["name"]: check for check in found["checks"]}, found["days"]


def test_a_machine_on_which_everything_works(clone):
    code, found, days = checks(clone)
    assert code == 0
    assert set(found) == {
        *("python", "system", "packages", "mlx", "compiler", "build_tools", "mlx_extension", "checks", "spaces"),
        "arithmetic",
        *("disk", "memory", "cache", "terminal", "files"),
    }
    assert found["python"]["found"] == f"{sys.version.split()[0]} ({sys.executable})"
    assert "mlx 0." in found["packages"]["found"]
    assert found["mlx"]["found"] in ("cpu", "gpu", "gpu (Metal)")
    assert found["files"]["found"] == f"src/tiny_llm parses; {len(tasks())} tasks are still stubs"
    assert "nanobind" in found["build_tools"]["found"]
    assert days == {f"{day.week}.{day.number}": True for week in weeks() for day in week.days}


def test_what_checks_kernels(clone, tmp_path):
    """Checked runs need only the compiler; the check of address spaces needs a clang."""
    _, found, _ = checks(clone, METAL_HOST_CLANG="")
    assert (found["checks"]["state"], found["spaces"]["state"]) == ("ok", "warning")
    assert found["spaces"]["found"].startswith("there is no clang 16 or newer: only plain mistakes are found")
    _, found, _ = checks(clone, CXX=script(tmp_path, "c++", "echo 'error: unknown argument: -fsanitize' >&2; exit 1"))
    assert (found["checks"]["state"], found["checks"]["found"]) == (
        "warning",
        "not possible with this compiler: error: unknown argument: -fsanitize",
    )


def test_in_words_and_in_japanese(clone):
    shown = clone.run("doctor").stdout
    assert "ok       Python: " in shown
    assert "days that can be done here: all\n" in shown
    assert "正常  MLX の計算デバイス: " in clone.run("doctor", "--lang", "ja").stdout


def test_mlx_that_does_not_import(clone, tmp_path):
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text("raise ImportError('libmlx.so: cannot open shared object file')\n")
    path = os.pathsep.join([str(tmp_path), str(clone.root / "src")])
    code, found, days = checks(clone, PYTHONPATH=path)
    assert code == 1
    assert found["mlx"]["state"] == "error"
    assert "cannot open shared object file" in found["mlx"]["found"]
    assert found["mlx"]["fix"] == "rm -r .venv && ./course next"
    assert not any(days.values())


def test_no_compiler(clone, tmp_path):
    code, found, days = checks(clone, PATH=str(tmp_path))
    assert code == 0
    assert found["compiler"]["state"] == "warning"
    assert found["compiler"]["fix"]
    assert (days["2.1"], days["2.2"]) == (True, False)


def test_an_mlx_extension_of_another_mlx(clone):
    folder = built(clone)
    folder.mkdir(exist_ok=True)
    before = {file: file.read_bytes() for file in folder.glob("*.json")}
    (folder / "mlx_extension.json").write_text('{"mlx": "0.1"}')
    for name in mlx_extension.NAMES:
        (folder / f"{name}.so").touch()
    _, found, _ = checks(clone)
    assert (found["mlx_extension"]["state"], found["mlx_extension"]["fix"]) == ("warning", "./course build-ext")
    for name in mlx_extension.NAMES:
        (folder / f"{name}.so").unlink()
    for file, content in before.items():
        file.write_bytes(content)


@pytest.mark.parametrize(
    ("names", "found", "fix"),
    [(["nanobind"], "- nanobind", "install"), (["Python.h"], "- Python.h", "")],
    ids=["nanobind", "headers"],
)
def test_what_the_mlx_extension_is_built_with_is_missing(clone, tmp_path, names, found, fix):
    _, rows, days = checks(clone, PYTHONPATH=path_without(clone, tmp_path / "site", names))
    assert (rows["build_tools"]["state"], rows["build_tools"]["found"]) == ("warning", found)
    assert fix in rows["build_tools"]["fix"]
    assert days["2.2"] is (rows["mlx_extension"]["state"] == "ok"), "an MLX extension that is built needs no tools"


def test_a_compiler_that_is_too_old(clone, tmp_path):
    code, found, days = checks(clone, CXX=old_compiler(tmp_path))
    assert (code, found["compiler"]["state"]) == (0, "warning")
    assert "g++ 9.5.0 does not compile C++20 with 16-bit floats" in found["compiler"]["found"]
    assert not days["2.2"]


def test_no_mlx_extension_and_one_that_fits(clone):
    shutil.rmtree(built(clone), ignore_errors=True)
    _, found, days = checks(clone)
    row = {
        "name": "mlx_extension",
        "state": "warning",
        "found": "the MLX extension, which runs your kernels, is not built yet; week 2 needs it",
        "fix": "./course build-ext",
    }
    assert found["mlx_extension"] == row
    assert days["2.2"], "it can be built"
    built(clone).mkdir()
    for name in mlx_extension.NAMES:
        built(clone).joinpath(f"{name}.so").touch()
    built(clone).joinpath("mlx_extension.json").write_text(json.dumps(mlx_extension._stamp(built(clone).parent, "")))
    clone.file("kernels/swiglu.cpp").write_text(clone.solved("kernels/swiglu.cpp", "w2d5.3"))
    _, found, _ = checks(clone)
    shutil.rmtree(built(clone))
    clone.file("kernels/swiglu.cpp").write_text(clone.solved("kernels/swiglu.cpp"))
    assert (found["mlx_extension"]["state"], found["mlx_extension"]["fix"]) == ("ok", "")
    assert found["mlx_extension"]["found"].startswith("the MLX extension is built for MLX 0.")
    assert "swiglu" in found["mlx_extension"]["found"].partition("; written: ")[2].split(", ")
    assert "softmax" not in found["mlx_extension"]["found"]


def test_a_terminal_that_is_not_utf_8(clone):
    _, found, _ = checks(clone, PYTHONIOENCODING="latin-1")
    assert (found["terminal"]["state"], found["terminal"]["fix"]) == ("warning", "export LC_ALL=C.UTF-8")


def test_a_syntax_error_and_a_missing_file(clone):
    file = clone.file("sampler.py")
    before = file.read_text()
    file.write_text("def broken(:\n")
    code, found, _ = checks(clone)
    assert (code, found["files"]["state"]) == (0, "warning")
    assert "sampler.py:1: invalid syntax" in found["files"]["found"]
    file.unlink()
    code, found, _ = checks(clone)
    assert code == 1
    assert found["files"]["fix"] == "git checkout src/tiny_llm/sampler.py"
    file.write_text(before)
