"""`tiny-llm batch` goes on after an interruption: nothing is lost or repeated, however the last run ended."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from batches import COMMAND, ENVIRONMENT, call, checkpoint, long_batch, results_in, write
from learner import run_python, start_python
from waiting import until

from tiny_llm_course.serve.batch_results import BatchResult, Results
from tiny_llm_course.ui.language import LANGUAGES, Messages

__all__ = ["checkpoint"]


device = pytest.fixture(lambda: None)  # the commands choose their own


INTERRUPTED = """
import os, signal
from tiny_llm_course.__main__ import main
from tiny_llm_course.serve.batch_results import BatchResult, Results

def add(self, result, add=Results.add):
    add(self, result)
    if len(self.done) == 5:
        os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does, and not after the end on a busy machine

Results.add = add
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
main()
"""


def start(*arguments: object) -> Any:
    """Start a process that runs the command and drops its output."""
    with open(os.devnull, "r+") as nothing:
        return start_python([*COMMAND, *map(str, arguments)], Path.cwd(), ENVIRONMENT, [nothing.fileno()] * 3)


def result(id: str) -> str:
    return json.dumps({"id": id, "text": "kept", "finish_reason": "stop"})


@pytest.mark.parametrize("language", LANGUAGES)
def test_goes_on_behind_a_half_written_line(language: str, checkpoint: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [{"id": id, "prompt": id, "max_tokens": 2} for id in "abc"])
    out = tmp_path / "results"
    for half in ('{"id": "b", "text": "Once', '{"i', '{"id": "c", "text": "\\', ""):
        out.write_text(result("a") + "\n" + half)
        code, _, stderr = call(file, "--out", out, "--model", checkpoint, "--lang", language)
        assert code == 0
        found = results_in(out)
        assert found.keys() == {*"abc"}
        assert [found[id]["text"] == "kept" for id in "abc"] == [True, False, False]
        assert (Messages(language)("batch_out_cut", file=out) in stderr) == (half != "")
        assert Messages(language)("batch_goes_on", done=1, count=3, file=out) in stderr
    before = out.read_bytes()
    record = tmp_path / "run.json"
    code, _, stderr = call(file, "--out", out, "--model", "/nowhere", "--record", record, "--lang", language)
    assert code == 0  # nothing is left to do
    assert Messages(language)("batch_no_record", file=record) in stderr
    assert not record.exists()
    assert out.read_bytes() == before


def test_a_whole_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text(result("a"))
    with Results(out, ["a", "b"]) as results:
        assert results.done == {"a"}
        results.add(BatchResult(id="b", text="", finish_reason="stop"))
    assert results_in(out).keys() == {"a", "b"}


FOREIGN = {
    result("z") + "\n": "{out}:1 is the result of another run: its request 'z' is not among these requests.",
    result("a") + "\n" + result("z"): "{out}:2 is the result of another run",
    '{"id": "a", "prompt": "x"}\n': "{out}:1 is not a result of a batch, so nothing is added",
    '{"id": "a", "prompt": "x"}': "{out}:1 is not a result of a batch",
    '{\n  "id": "a"\n}\n': "{out}:1 is not a result of a batch",
    "important notes": "{out}:1 is not a result of a batch",
    result("a") + "\n\n": "{out}:2 is not a result of a batch",
    "[" * 100_000 + "\n": "{out}:1 is not a result of a batch",
}


@pytest.mark.parametrize("content", FOREIGN, ids=range(len(FOREIGN)))
def test_files_of_others_are_left_alone(content: str, tmp_path: Path) -> None:
    file, out = write(tmp_path / "in.jsonl", [{"id": "a", "prompt": "x"}]), tmp_path / "out"
    out.write_text(content)
    code, _, stderr = call(file, "--out", out, "--model", "/nowhere")
    assert (code, stderr.count("\n")) == (2, 1)
    assert stderr.startswith(f"error: --out: {FOREIGN[content].format(out=out)}")
    assert out.read_text() == content


def test_only_one_writes(tmp_path: Path) -> None:
    file, out = write(tmp_path / "in.jsonl", [{"id": "a", "prompt": "x"}]), tmp_path / "out"
    with Results(out, ["a"]):
        code, _, stderr = call(file, "--out", out, "--model", "/nowhere")
        assert code == 1
        assert stderr.startswith(f"error: --out: another batch is writing to {out}; wait until it ends")
    assert not out.exists()  # nothing was written, so nothing is left


def has_grown(file: Path, size: int) -> bool:
    """Tell whether a file has at least `size` bytes."""
    return file.exists() and file.stat().st_size >= size


def test_killed_at_any_moment(checkpoint: Path, tmp_path: Path) -> None:
    """After several kill -9, each whole line is still there, and in the end there is one line for each request."""
    file, ids = long_batch(tmp_path)
    out, chance = tmp_path / "in.out.jsonl", random.Random(3)
    options = [file, "--model", checkpoint, "--max-running", 4, "--dtype", "float32"]
    whole = b""
    for _ in range(3):
        process = start(*options)
        size = len(whole) + chance.randrange(1, 400)
        until(lambda size=size, process=process: has_grown(out, size) or process.poll() is not None)
        assert process.poll() is None
        process.kill()
        process.wait()
        found = out.read_bytes()
        assert found.startswith(whole)
        whole = found[: found.rindex(b"\n") + 1]
        with out.open("ab") as grown:  # what a kill in the middle of a line would have left
            grown.write(b'{"id": "r5", "te' * chance.randrange(2))
    assert 0 < whole.count(b"\n") < len(ids)
    code, _, stderr = call(*options)
    assert code == 0, stderr
    assert out.read_bytes().startswith(whole)
    found = results_in(out)
    assert found.keys() == {*ids}
    assert all(found[id]["usage"]["completion_tokens"] == 3 + i % 30 for i, id in enumerate(ids))


def test_ctrl_c_says_how_to_go_on(checkpoint: Path, tmp_path: Path) -> None:
    file, ids = long_batch(tmp_path)
    out, record = tmp_path / "in.out.jsonl", tmp_path / "run.json"
    options = [file, "--model", checkpoint, "--max-running", 2, "--record", record, "--lang", "ja"]
    run = run_python(["-c", INTERRUPTED, "batch", *map(str, options)], tmp_path, ENVIRONMENT, timeout=600)
    stderr, done = run.stderr, len(results_in(out))
    assert run.returncode == 130
    assert 5 <= done < len(ids)
    assert stderr.endswith("\n" + Messages("ja")("batch_interrupted", done=done, count=len(ids), file=out) + "\n")
    assert "Traceback" not in stderr
    finished = [id for step in json.loads(record.read_text())["steps"] for id in step["finished"]]
    assert {*finished} >= {*results_in(out)}  # the last step's may not have been written
    assert call(*options)[0] == 0
    assert results_in(out).keys() == {*ids}


def test_ctrl_c_while_a_result_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is written, counted and kept, and then the command ends."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: signal.raise_signal(signal.SIGINT))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Results(tmp_path / "out.jsonl", ["a"]) as results:
            results.add(BatchResult(id="a", text="", finish_reason="stop"))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert results.done == {"a"}
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"id": "a", "text": "", "finish_reason": "stop"}
