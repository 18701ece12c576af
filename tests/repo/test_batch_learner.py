"""`tiny-llm batch` and `serve` on a learner's code, at each stage of week 3, and with errors in the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from batches import MIXED, checkpoint, expected_text, results_in, write
from learner import Clone, new_clone

from tiny_llm_course.tasks.syllabus import tasks

__all__ = ["checkpoint"]


device = pytest.fixture(lambda: None)  # the commands choose their own


clone = pytest.fixture(new_clone, scope="module")


WRITTEN = {  # the last solved day of week 3, and the message
    0: "error: --cache slots: this is not written yet. First: w3d1.1 (src/tiny",
    1: "note: w3d2.1 is not written yet, so each prompt is computed in one step",
    2: "note: not written yet, so requests are served with the cache slots: pages (w3d3.1), ",
    3: "note: not written yet, so requests are served with the cache pages: ",
}


@pytest.mark.parametrize("day", WRITTEN)
def test_as_far_as_a_learner_has_come(day: int, clone: Clone, checkpoint: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", MIXED[:2])
    write_days(clone, day)
    options = ["--dtype", "float32", "--impl", "mine", "--model", "/nowhere" if day == 2 else str(checkpoint)]
    run = clone.run("batch", str(file), *options)
    assert WRITTEN[day] in run.stderr
    assert run.returncode == day % 2 ^ 1
    if run.returncode == 0:
        found = results_in(tmp_path / "in.out.jsonl")
        assert f"cache {'pages' if day == 3 else 'slots'}: " in run.stderr
        assert [found[r["id"]]["text"] for r in MIXED[:2]] == [expected_text(checkpoint, r) for r in MIXED[:2]]
    else:
        assert list(tmp_path.iterdir()) == [file]


def write_days(clone: Clone, day: int) -> None:
    """Solve week 3 up to this day."""
    solved = [str(task.id) for task in tasks() if (task.id.week, task.id.day) <= (3, day)]
    for name in (path.relative_to(clone.root / "src/tiny_llm").as_posix() for path in clone.file(".").rglob("*.py")):
        if not name.startswith("kernels"):
            clone.file(name).write_text(clone.solved(name, *solved))


def test_a_cache_that_is_asked_for_and_not_written(clone: Clone, tmp_path: Path) -> None:
    write_days(clone, 2)
    file = write(tmp_path / "in.jsonl", MIXED[:1])
    run = clone.run("batch", str(file), "--impl", "mine", "--cache", "pages", "--lang", "ja")
    assert run.returncode == 1
    assert run.stderr.startswith("エラー: --cache pages: まだ実装されていません。先に w3d3.1 を")


@pytest.mark.parametrize(("command", "days"), [("batch", {1}), ("serve", {1, 7})])
def test_what_requests_need_is_counted(command: str, days: set[int], clone: Clone, tmp_path: Path) -> None:
    """The commands need, on stubs, week 1 without its loop, which is for one text, and the days of week 3 that they
    use."""
    for file in clone.file(".").rglob("*.py"):
        name = file.relative_to(clone.file(".")).as_posix()
        file.write_text(clone.solved(name, "w1d4.1", "w3d1.3"))
    of_week_3 = [task for task in tasks() if task.id.week == 3 and task.id.day in days]
    needed = {str(task.id) for task in [*(task for task in tasks() if task.id.week == 1), *of_week_3]}
    count = len(needed - {"w1d6.1", "w1d4.1", "w3d1.3"})
    given = [str(write(tmp_path / "in.jsonl", MIXED[:1]))] if command == "batch" else ["--port", "0"]
    last = clone.run(command, *given, "--impl", "mine").stderr.splitlines()[-1]
    assert "First: w1d1.1 (src/tiny_llm/attention.py:" in last
    assert last.endswith(f"; tasks still to be written: {count}")


def test_a_learners_error_is_shown_and_becomes_no_result(clone: Clone, checkpoint: Path, tmp_path: Path) -> None:
    """The code of every request raises it, and a file full of errors would help nobody, and be skipped the next
    time."""
    write_days(clone, 1)
    file, code = write(tmp_path / "in.jsonl", MIXED[:1]), clone.file("serving/request.py")
    code.write_text(code.read_text().replace("self.output.append(token)", "self.output.append(token + [])"))
    run = clone.run("batch", str(file), "--impl", "mine", "--model", str(checkpoint))
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("TypeError: ")
    assert "request.py" in run.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_a_server_that_is_not_written(clone: Clone, checkpoint: Path) -> None:
    write_days(clone, 6)
    run = clone.run("serve", "--impl", "mine", "--model", str(checkpoint), "--port", "0")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("error: ./course serve: this is not written yet. First: w3d7.1 (src/")
    assert "Traceback" not in run.stderr


def test_a_server_whose_loop_breaks_ends(clone: Clone, checkpoint: Path) -> None:
    write_days(clone, 7)
    code = clone.file("serving/async_engine.py")
    code.write_text(
        code.read_text().replace(
            "        while True:\n            while not", "        while [] + 1:\n            while not"
        )
    )
    run = clone.run("serve", "--impl", "mine", "--model", str(checkpoint), "--port", "0")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("TypeError: ")
    assert "async_engine.py" in run.stderr
