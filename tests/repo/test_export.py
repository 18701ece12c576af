"""`tiny-llm export --student`: the export contains no solutions, and a student's commands work in it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from learner import Clone
from trees import copy_modules

from tiny_llm_course.tasks.regions import SUFFIXES, code_files
from tiny_llm_course.tasks.syllabus import select_days
from tiny_llm_course.tasks.toml import read_toml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """Return the exported course as a learner's clone."""
    folder = tmp_path_factory.mktemp("handed out") / "course"
    command = [sys.executable, "-m", "tiny_llm_course", "export", "--student", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return Clone(folder)


def distinctive_lines():
    """Return lines of the reference in Python, C++ and Metal that occur in no stub and in no shared code. Barriers are
    left out, because the book shows them."""
    packages = ("tiny_llm", "tiny_llm_given", "tiny_llm_native")
    stubs = "\n".join(file.read_text() for package in packages for file in code_files(ROOT / "src" / package))
    for file in code_files(ROOT / "src/tiny_llm_ref"):
        for line in file.read_text().splitlines():
            code = line.strip()
            if len(code) > 30 and code not in stubs and not code.startswith(('"""', "#", "//", "threadgroup_barrier(")):
                yield code


def test_no_line_of_a_solution_is_in_it(student):
    lines = list(distinctive_lines())
    assert len(lines) > 90
    assert any("floats" in line for line in lines), "of kernels, too"
    texts = {
        file: file.read_text(encoding="utf-8")
        for file in student.root.rglob("*")
        if file.suffix in (*SUFFIXES, ".toml", ".md", ".svg", ".json", ".txt") and ".git" not in file.parts
    }
    assert len(texts) > 50
    found = [(file.relative_to(student.root), line) for file, text in texts.items() for line in lines if line in text]
    assert found == []


def test_what_is_withheld_and_what_is_there(student):
    tests = ("tests/repo", "tests/metal_host")
    pages = ("CHANGELOG.md", "CONTRIBUTING.md", "docs")
    for name in ("src/tiny_llm_ref", "scripts", *tests, "notebooks", *pages, ".ci"):
        assert not (student.root / name).exists()
    course = ("course", "pyproject.toml", "pdm.lock", ".devcontainer/devcontainer.json", "tests/conftest.py")
    for name in (*course, "src/tiny_llm_models/story/config.json"):
        assert (student.root / name).exists()
    tutor = (ROOT / "src/tiny_llm/AGENTS.md").read_bytes()
    for name in ("AGENTS.md", "src/tiny_llm/AGENTS.md"):
        assert (student.root / name).read_bytes() == tutor, "not the one for maintainers"
    in_book = {path.relative_to(student.root).as_posix() for path in (student.root / "book").rglob("*.*")}
    assert "book/week_0/circle.py" in in_book
    assert all(re.fullmatch(r"book/week_\d+/\w+\.py", name) for name in in_book)
    assert (
        "mistakes"
        not in (student.root / "src/tiny_llm_course/catalogue/week_1_day_1.toml").read_text().partition("\n")[2]
    )
    assert "test-ref" not in (student.root / "pyproject.toml").read_text()
    stubs = code_files(ROOT / "src/tiny_llm")
    for package in ("tiny_llm", "tiny_llm_course/pristine"):
        for stub in stubs:
            copy = student.root / "src" / package / stub.relative_to(ROOT / "src/tiny_llm")
            assert copy.read_bytes() == stub.read_bytes()
        assert len(code_files(student.root / "src" / package)) == len(stubs)
    log = subprocess.run(["git", "status", "--short"], cwd=student.root, capture_output=True, text=True)
    assert (log.returncode, log.stdout) == (0, "")


def test_kernels_have_what_they_need(student):
    for theirs, ours in (("tiny_llm/kernels", "tiny_llm_ref/kernels"), ("tiny_llm_native", "tiny_llm_native")):
        there, here = student.root / "src" / theirs, ROOT / "src" / ours
        names = {file.relative_to(there) for file in there.rglob("*") if file.is_file()}
        assert names == {file.relative_to(here) for file in code_files(here)}
    assert (student.root / "src/tiny_llm_course/native/mlx_extension.cmake").exists()
    assert list(student.root.rglob("built")) == []
    project = (student.root / "pyproject.toml").read_text()
    assert "\nbuild-ext = " in project
    assert "build-ext-ref" not in project
    refused = student.run("build-ext", PATH="/nowhere")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "kernels need a C++ compiler" in refused.stderr
    shown = student.run("test", "w2d5.3").stdout
    assert re.search(r"○ w2d5.3  SwiGLU: to be written\n.*swiglu\.cpp:\d+\n", shown, re.DOTALL)


def test_the_commands_work(student):
    assert "(w1d1.1)" in student.run("next").stdout
    assert "hint 1 of 3" in student.run("hint").stdout
    stubs = student.run("test", "--week", "1", "--day", "1")
    assert stubs.returncode == 1
    assert "is yours to write" in stubs.stdout
    assert "your instructor withheld them" in student.run("solution").stderr
    for name in ("README.md", "README.ja.md"):
        text = (student.root / name).read_text(encoding="utf-8")
        assert "src/tiny_llm_ref" not in text
        assert all((student.root / link).exists() for link in re.findall(r"\]\(([^)#:]+)\)", text))
    assert "src/tiny_llm is not finished" in student.run("main", "--impl", "mine", "--prompt", "Hello").stderr
    assert student.run("doctor").returncode == 0


def test_a_task_can_be_solved_and_reset(student):
    before = student.file("layer_norm.py").read_text()
    student.file("layer_norm.py").write_text(student.solved("layer_norm.py", "w1d4.1"))
    solved = student.run("test", "--week", "1", "--day", "4", "-k", "task_1")
    assert solved.returncode == 0
    assert "w1d4.1 is solved." in solved.stdout
    assert student.run("reset", "w1d4.1").returncode == 0
    assert student.file("layer_norm.py").read_text() == before


def test_day_6_generates_before_day_7_is_written(student):
    """Without a reference, no functions can check the options."""
    copy_modules(student.root, ROOT, [name for day in select_days("1", None) if day.number < 7 for name in day.modules])
    written = student.run("main", "--impl", "mine", "--temp", "0", "--prompt", "Hello", "--max-tokens", "3")
    assert written.returncode == 0, written.stderr
    assert "first: w1d7.1" in student.run("main", "--impl", "mine", "--prompt", "Hello").stderr
    assert "--stop: expected" in student.run("main", "--temp", "0", "--prompt", "Hello", "--stop", "").stderr


def test_a_folder_in_use_is_left_alone(student, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    command = [sys.executable, "-m", "tiny_llm_course", "export", "--student", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2
    assert "expected a folder that does not exist or is empty" in run.stderr
    assert student.run("export", "--student", str(tmp_path / "again")).returncode == 2


def test_catalogue_files_still_parse(student):
    ast.parse((student.root / "src/tiny_llm_course/catalogue/__init__.py").read_text())
    for file in sorted((student.root / "src/tiny_llm_course/catalogue").glob("*.toml")):
        table = read_toml(file)
        assert all(len(task["hints"]) == 3 and "mistakes" not in task for task in table["tasks"])
