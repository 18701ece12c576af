"""Tasks in C++ and Metal: their stubs, and the learner's commands on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from learner import Clone

from tiny_llm_course.tasks.regions import regions, with_regions
from tiny_llm_course.tasks.splice import SpliceError, splice
from tiny_llm_course.tasks.stubs import make_stub
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_course.tasks.task_code import StubError

CPP = """\
#include "scale.h"

float scaled(float x) {
    float result = 0;
    // task w1d1.1 begin
    float half = x / 2;
    result = half;
    // task w1d1.1 end
    return result;
}

  // task w1d1.2 begin
float other(float x) { return x; }
  // task w1d1.2 end
"""
STUB = """\
#include "scale.h"

float scaled(float x) {
    float result = 0;
    // task w1d1.1 begin
    // Week 1 Day 1 Task 1: what belongs here is yours to write.
    // Chapter: Attention and multi-head attention.
    // Test: ./course test w1d1.1
    // task w1d1.1 end
    return result;
}

  // task w1d1.2 begin
// Week 1 Day 1 Task 2: what belongs here is yours to write.
// Chapter: Attention and multi-head attention.
// Test: ./course test w1d1.2
  // task w1d1.2 end
"""
MINE = "    result = 0.5f * x;  // mine\n"
ONE, TWO = TaskId(1, 1, 1), TaskId(1, 1, 2)


def test_stub():
    assert make_stub(CPP, filename="scale.cpp") == STUB
    assert make_stub(CPP, filename="scale.metal", is_solved=lambda task: True) == CPP
    half = make_stub(CPP, filename="scale.h", is_solved=lambda task: task == ONE)
    assert "float half" in half
    assert "float other" not in half


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("// task w1d1.1 begin\n", "x.cpp:1: `// task w1d1.1 begin` without its partner"),
        ("int x;\n// task w1d1.1 end\n", "x.cpp:2: `// task w1d1.1 end` without its partner"),
        ("// task w1d1.1 begin\n// task w1d1.2 end\n", "x.cpp:1: `// task w1d1.1 begin` without its partner"),
        ("// task w1d1.1 begin\n// task w1d1.2 begin\n", "x.cpp:1: `// task w1d1.1 begin` without its partner"),
        ("// task w1d1.1 begin\n// task w1d1.1 end\n" * 2, "x.cpp:4: a second region of w1d1.1"),
        ("// task one begin\n// task one end\n", "x.cpp:2: a task id looks like w1d2.3, got 'one'"),
        ("// task w9d9.9 begin\n// task w9d9.9 end\n", "x.cpp:2: the syllabus has no task w9d9.9"),
    ],
)
def test_faulty_markers(source: str, error: str):
    with pytest.raises(StubError) as raised:
        make_stub(source, filename="x.cpp")
    assert str(raised.value) == error


def test_only_one_region_is_replaced():
    mine = with_regions(STUB, {ONE: MINE}, "scale.cpp")
    assert regions(mine, "scale.cpp")[ONE] == MINE
    assert splice(mine, CPP, ["w1d1.2"], "scale.cpp") == with_regions(CPP, {ONE: MINE}, "scale.cpp")
    assert splice(mine, STUB, ["w1d1.1"], "scale.cpp") == STUB


def test_line_ends_stay():
    windows = STUB.replace("\n", "\r\n")
    assert splice(windows, CPP, ["w1d1.1", "w1d1.2"], "scale.cpp") == CPP.replace("\n", "\r\n")


def test_a_file_without_the_markers_is_left_alone():
    with pytest.raises(SpliceError, match=r"scale.cpp: expected `// task w1d1.1 begin` and `// task w1d1.1 end`"):
        splice(STUB.replace("// task w1d1.1", "// tusk w1d1.1"), CPP, ["w1d1.1"], "scale.cpp")
    with pytest.raises(SpliceError, match=r"scale.cpp:5: .* without its partner; the file was left as it is"):
        splice(STUB.replace("// task w1d1.1 end", ""), CPP, ["w1d1.2"], "scale.cpp")


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """Return a course whose day 1 also has a task in Metal and one in C++."""
    clone = Clone.create(tmp_path)
    syllabus = clone.root / "src/tiny_llm_course/syllabus.toml"
    text = syllabus.read_text(encoding="utf-8")
    changed = text.replace('modules = ["basics", "attention"]', 'modules = ["attention", "kernels/scale"]', 1)
    assert changed != text
    syllabus.write_text(changed, encoding="utf-8")
    for package, code in (("tiny_llm_ref", CPP), ("tiny_llm", STUB)):
        folder = clone.root / "src" / package / "kernels"
        folder.mkdir(exist_ok=True)
        for name in ("scale.cpp", "scale.metal"):
            (folder / name).write_text(code)
    return clone


def test_solution_reset_and_undo(clone: Clone):
    cpp, metal = clone.file("kernels/scale.cpp"), clone.file("kernels/scale.metal")
    mine = with_regions(STUB, {ONE: MINE}, "scale.cpp")
    cpp.write_text(mine)
    shown = clone.run("solution", "w1d1.1").stdout
    assert "-    result = 0.5f * x;  // mine\n+    float half = x / 2;\n" in shown
    assert "--- src/tiny_llm/kernels/scale.metal (yours)" in shown
    assert cpp.read_text() == mine

    assert clone.run("solution", "w1d1.1", "--apply").returncode == 0
    assert (
        cpp.read_text()
        == metal.read_text()
        == with_regions(CPP, regions(STUB, "x.cpp") | {ONE: regions(CPP, "x.cpp")[ONE]}, "x.cpp")
    )
    assert clone.run("undo").returncode == 0
    assert cpp.read_text() == mine
    assert metal.read_text() == STUB

    assert clone.run("reset", "w1d1.1").returncode == 0
    assert cpp.read_text() == STUB
    clone.run("undo")
    assert cpp.read_text() == mine

    assert clone.run("solution", "--day", "1.1").returncode == 0
    assert metal.read_text() == CPP
    assert cpp.read_text() == CPP


def test_a_region_that_is_missing(clone: Clone):
    broken = STUB.replace("// task w1d1.1", "// tusk w1d1.1")
    clone.file("kernels/scale.metal").write_text(broken)
    attention = clone.file("attention.py").read_text()
    result = clone.run("solution", "w1d1.1", "--apply")
    assert result.returncode == 1
    assert "kernels/scale.metal: expected `// task w1d1.1 begin`" in result.stderr
    assert clone.file("kernels/scale.metal").read_text() == broken
    assert clone.file("attention.py").read_text() == attention


def test_next_names_the_region(clone: Clone):
    clone.file("attention.py").write_text(clone.solved("attention.py", "w1d1.1", "w1d1.2"))
    clone.file("layer_norm.py").write_text(clone.solved("layer_norm.py", "w1d4.1"))
    (clone.root / "progress.txt").write_text("w1d4.1 solved\n")  # so that the learner is in week 1
    assert "src/tiny_llm/kernels/scale.cpp:6" in clone.run("next").stdout
