"""`tiny-llm watch` in a pseudo-terminal: saves, keys, a task that passes, no events, no colours."""

import re

import pytest
from learner import Clone

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.tasks.syllabus import TaskId, tasks


@pytest.fixture
def clone(tmp_path):
    return Clone.create(tmp_path / "course")


KEYS = "n next   h hint   l list   r run   q quit"


def test_a_task_from_stub_to_solution(clone):
    terminal = clone.terminal("watch", "w1d1.1")
    screen = terminal.wait_for("If not, press r.")
    assert "scaled_dot_product_attention_simple is yours to write" in screen
    assert KEYS in screen

    solved = clone.solved("attention.py", "w1d1.1")
    clone.file("attention.py").write_text(solved.replace(" * scale  # N.., L, S", "  # N.., L, S"))
    screen = terminal.wait_for("A known mistake (scale-never-used)")
    assert re.search(r"\d\d of \d\d failed", screen)

    terminal.send("h")
    screen = terminal.wait_for("More: press h again.")
    assert "Your last test run found a known mistake" in screen
    assert "hint 1 of 3" in screen
    terminal.send("h")
    terminal.wait_for("hint 2 of 3")

    clone.file("attention.py").write_text(solved)
    screen = terminal.wait_for("Linear layer and multi-head attention (w1d1.2)")
    assert re.search(r"w1d1\.1 .*: \d+ passed", screen)
    assert entry_of(TaskId(1, 1, 1)).learned["en"][:40] in screen

    terminal.send("n")  # the next one, which waits already, and not the one after it
    terminal.wait_for("Week 1 Day 1 Task 2: linear is yours to write")
    terminal.send("r")
    terminal.wait_for("Week 1 Day 1 Task 2: linear is yours to write")
    terminal.send("n")
    terminal.wait_for("Week 1 Day 2 Task 1: RoPE.__init__ is yours to write")
    terminal.send("l")
    assert "✔ w1d1.1" in terminal.wait_for("All weeks: press l again.")
    terminal.send("q")
    assert terminal.exit_code() == 0
    assert "w1d1.1 solved" in (clone.root / "progress.txt").read_text()


@pytest.mark.parametrize("rows", [24, 30, 60])
def test_the_list_fits_on_the_screen(clone, rows):
    """The list shows the current week, or, of a long week, the days near the task. When pressed again, l shows
    everything."""
    terminal = clone.terminal("watch", "w2d5.2", rows=rows, columns=80)
    terminal.wait_for("If not, press r.")
    terminal.send("l")
    screen = terminal.wait_for("All weeks: press l again.")
    screen = terminal.wait_for("If not, press r.\n")
    assert screen.count("\n") < rows
    assert "Week 1  From matmul to text  0 solved, 0 skipped, 19 open\n" in screen
    assert "○ w2d5.6" in screen
    assert ("○ w2d1.1" in screen) == (rows == 60)
    assert ("Day 1  The KV cache  (0 of 4 done)" in screen) == (rows < 60)
    assert "w1d1.1" not in screen
    terminal.send("l")
    screen = terminal.wait_for("w3d7.4")
    assert all(f"○ {task.id}" in screen for task in tasks())
    terminal.send("hl")
    terminal.wait_for("All weeks: press l again.")
    terminal.send("q")
    assert terminal.exit_code() == 0


def test_without_colour_and_events(clone):
    """The terminal understands no escapes, and the file system reports no changes: polling sees the file's time."""
    terminal = clone.terminal("watch", "w1d4.1", TERM="dumb", NO_COLOR="1", WATCHFILES_FORCE_POLLING="true")
    terminal.wait_for("RMSNorm.__call__ is yours to write")
    clone.run("solution", "w1d4.1", "--apply")
    assert re.search(r"w1d4\.1  RMSNorm: \d+ passed", terminal.wait_for(" passed"))
    terminal.send("q")
    assert terminal.exit_code() == 0
    assert "\x1b" not in terminal.raw


def test_a_kernel(clone):
    """Saved C++ files, headers included, are tested like Python files."""
    terminal = clone.terminal("watch", "w2d5.3")
    screen = terminal.wait_for("If not, press r.")
    assert "Week 2 Day 5 Task 3" in screen
    assert "src/tiny_llm/kernels/swiglu.cpp:" in screen
    solved = clone.solved("kernels/swiglu.cpp", "w2d5.3")
    clone.file("kernels/swiglu.cpp").write_text(solved.replace("const float g", "const flaot g"))
    assert "src/tiny_llm/kernels/swiglu.cpp:" in terminal.wait_for("'flaot'")
    terminal.wait_for("If not, press r.")
    header = clone.root / "src/tiny_llm_native/rows.h"
    before = header.read_text()
    header.write_text(before.replace("#pragma once", "#pragma once\n#error no rows today"))
    clone.file("kernels/swiglu.cpp").write_text(solved)
    terminal.wait_for("no rows today")
    terminal.wait_for("If not, press r.")
    header.write_text(before)
    terminal.wait_for("w2d5.3 is solved.")
    terminal.send("q")
    assert terminal.exit_code() == 0


def test_ctrl_c_and_japanese(clone):
    terminal = clone.terminal("watch", "--lang", "ja")
    terminal.wait_for("n 次へ   h ヒント   l 一覧   r 実行   q 終了")
    terminal.send("\x03")
    assert terminal.exit_code() == 0


def test_a_file_that_does_not_parse(clone):
    terminal = clone.terminal("watch")
    terminal.wait_for(KEYS)
    clone.file("attention.py").write_text("def broken(:\n")
    terminal.wait_for("SyntaxError")
    terminal.send("q")
    assert terminal.exit_code() == 0


def test_without_a_terminal(clone):
    result = clone.run("watch")
    assert result.returncode == 2
    assert "watch needs a terminal; in scripts use ./course test" in result.stderr
