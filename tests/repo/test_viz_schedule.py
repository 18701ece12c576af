"""`tiny-llm viz schedule`: the record of a run, its layout, and the files that are drawn from it."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from test_viz import NASTY, assert_asks_for_nothing, call, checkpoint, data_of
from typer.testing import CliRunner

from tiny_llm_course.base.extras import install_command
from tiny_llm_course.serve.run_record import RunRecorder
from tiny_llm_course.ui.errors import CommandError
from tiny_llm_course.ui.language import LANGUAGES, Messages, speaking
from tiny_llm_course.viz.schedule_page import schedule_page
from tiny_llm_course.viz.schedule_run import read_run
from tiny_llm_course.viz.viz_commands import app
from tiny_llm_ref import models
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import PagedKVCache
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget

__all__ = ["checkpoint"]

EN = Messages("en")


device = pytest.fixture(lambda: None)  # the commands choose their own


class Watcher:
    """A record of what an engine did, made from the engine's own objects."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def on_step(self, engine: Any, batch: Any, touched: Any) -> None:
        self.batches.append(batch)

    def on_abort(self, engine: Any, request: Any) -> None:
        pass


@pytest.fixture(scope="module")
def recorded(checkpoint: Path) -> tuple[RunRecorder, list[Any]]:
    """Run nine requests with few pages: some are preempted, one is aborted while it runs, one while it waits. The clock
    advances by a second at each reading."""
    model, _ = models.load(checkpoint)
    ticks, watcher = count(), Watcher()
    about = {"model": "tiny", "cache": "pages", "max_running": 4, "token_budget": 8}
    recorder = RunRecorder(about, backlog=lambda: 100, clock=lambda: float(next(ticks)))
    cache = PagedKVCache(len(model.layers), PagePool(8, 4))
    engine = Engine(model, Scheduler(cache, 4, TokenBudget(8), PreemptNewest()), [recorder, watcher], is_checked=True)
    for i in range(9):
        params = SamplingParams(max_tokens=6 + i, ignore_eos=True)
        engine.add(Request(NASTY if i == 2 else f"r{i}", list(range(3 + 2 * i % 11)), params))
    for _ in range(3):
        engine.step()
    engine.abort("r0")
    engine.abort("r8")
    for _ in engine.run():
        pass
    return recorder, watcher.batches


@pytest.fixture
def file(recorded: tuple[RunRecorder, list[Any]], tmp_path: Path) -> Path:
    recorded[0].write(tmp_path / "run.json")
    return tmp_path / "run.json"


def test_what_is_recorded(recorded: tuple[RunRecorder, list[Any]]) -> None:
    data, batches = recorded[0].run().model_dump(exclude_none=True), recorded[1]
    steps = data["steps"]
    assert len(steps) == len(batches)
    for step, batch in zip(steps, batches, strict=True):
        chunks = [(c.request.id, c.start, len(c.tokens), c.num_logits) for c in batch.chunks]
        assert [tuple(chunk.values()) for chunk in step["chunks"]] == chunks
        assert step["preempted"] == list(batch.preempted)
        assert step["generated"] == sum(chunk.num_logits for chunk in batch.chunks)  # without guesses and ends
    assert sum(len(step["preempted"]) for step in steps) > 1
    assert (steps[0]["waiting"], steps[-1]["waiting"]) == (100 + 9 - steps[0]["running"], 100)
    assert [step["time"] for step in steps[:4]] == [1, 2, 3, 6]  # after two aborts
    assert data["aborted"] == [{"id": "r0", "time": 4, "step": 3}, {"id": "r8", "time": 5, "step": 3}]
    assert data["pages"] == {"count": 8, "size": 4}
    assert steps[0]["pages_used"] == 3  # 3 tokens and 5, on pages of 4
    assert steps[-1]["pages_used"] == 0
    assert max(step["pages_used"] for step in steps) == 8
    finished = {id: why for step in steps for id, why in step["finished"].items()}
    assert finished == {NASTY if i == 2 else f"r{i}": "length" for i in range(1, 8)}
    assert data["requests"]["r3"] == {"prompt": 9}


def test_lanes(file: Path) -> None:
    run = read_run(file)
    taken = [(span.lane, step) for span in run.spans for step in range(span.first, span.last)]
    assert len(set(taken)) == len(taken)  # a lane holds one request at a time
    assert run.lanes == 1 + max(lane for lane, _ in taken) == max(Counter(step for _, step in taken).values())
    where = {(span.id, step): span.lane for span in run.spans for step in range(span.first, span.last)}
    for number, step in enumerate(run.steps):
        for work in step.work:
            assert where[work.id, number] == work.lane
        for place in step.preempted:
            assert where[place.id, number - 1] == place.lane
            assert (place.id, number) not in where
    first = {}
    for number, step in enumerate(run.steps):
        for work in step.work:
            first.setdefault(work.id, (number, work))
    assert {work.kind for _, work in first.values()} == {"prefill"}
    assert [(place.id, place.lane is None) for place in run.steps[3].aborted] == [("r0", False), ("r8", True)]


def test_kinds_of_work(file: Path) -> None:
    """Each position of a request is computed first as prompt or output, and again only after a preemption."""
    run = read_run(file)
    seen: dict[str, set[int]] = {}
    lost: set[str] = set()
    for step in run.steps:
        lost |= {place.id for place in step.preempted}
        for work in step.work:
            positions = set(range(work.start, work.start + work.length))
            before = seen.setdefault(work.id, set())
            assert (work.kind == "again") == bool(positions & before)
            assert work.kind != "again" or work.id in lost
            if work.kind != "again":
                assert (work.kind == "prefill") == (work.start < run.prompts[work.id])
            before |= positions
    assert any(work.kind == "again" for step in run.steps for work in step.work)


@pytest.mark.parametrize("language", LANGUAGES)
def test_files(language: str, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    text = call("schedule", file, "--out", out, "--lang", language)
    run, words = read_run(file), Messages(language)
    assert words("viz_schedule_title", model="tiny", cache="pages") in text
    again = sum(work.length for step in run.steps for work in step.work if work.kind == "again")
    assert re.search(rf"{words('viz_schedule_tokens_again')} +{again}\n", text)
    assert re.search(rf"{words('viz_schedule_most_pages')} +8 / 8\n", text)
    assert text.endswith(
        f"{words('viz_wrote', file=out / 'schedule.png')}\n{words('viz_wrote', file=out / 'schedule.html')}\n"
    )
    pixels = imread(out / "schedule.png")[..., :3]
    assert pixels[0, 0].tolist() == [1, 1, 1]
    colours = {
        tuple(np.round(np.array(colour) * 255).astype(int)) for colour in np.unique(pixels.reshape(-1, 3), axis=0)
    }
    assert {(0, 114, 178), (233, 180, 76), (138, 95, 192), (0, 121, 90)} <= colours  # prefill, decode, again, pages
    page = (out / "schedule.html").read_text()
    assert f'<html lang="{language}">' in page
    assert data_of(page)["texts"]["preempted"] == words("viz_schedule_preempted")


@pytest.mark.parametrize("name", ["a.png", "b.svg", "c.html"])
def test_one_file(name: str, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / name
    assert call("schedule", file, "--out", out).count("wrote ") == 1
    assert [path.name for path in out.parent.iterdir()] == [name]
    content = out.read_bytes()
    assert content.startswith({"png": b"\x89PNG", "svg": b"<?xml", "html": b"<!doctype html>"}[name[2:]])
    call("schedule", file, "--out", out)
    assert out.read_bytes() == content  # the same run is the same file


def test_the_page_survives_any_id_and_asks_for_nothing(file: Path) -> None:
    run = read_run(file)
    page = schedule_page(run, EN)
    data = data_of(page)
    assert NASTY in data["ids"]
    assert "r8" in data["ids"]  # of which no step computed anything
    assert len(data["steps"]) == len(run.steps)
    for step, drawn in zip(run.steps, data["steps"], strict=True):
        work = [
            [data["ids"].index(w.id), w.lane, data["kinds"].index(w.kind), w.start, w.length, w.scored]
            for w in step.work
        ]
        assert drawn["work"] == work
        assert (drawn["waiting"], drawn["used"]) == (step.waiting, step.pages_used)
    assert_asks_for_nothing(page)
    script = page.rpartition("<script>")[2]
    used = set(re.findall(r"texts\.(\w+)", script)) - {"data"}
    assert used <= data["texts"].keys(), used - data["texts"].keys()


def test_without_matplotlib(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = call("schedule", file, "--out", tmp_path / "made")
    assert f"No picture: matplotlib is not installed. To install it: {install_command('viz')}" in text
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["schedule.html"]


def test_a_run_without_pages_and_one_that_was_cut(file: Path, tmp_path: Path) -> None:
    data = json.loads(file.read_text())
    data["pages"] = None
    data["steps"] = data["steps"][:1]
    file.write_text(json.dumps(data))
    text = call("schedule", file, "--out", tmp_path / "made")
    assert "pages used" not in text
    assert "8 / 8" not in text
    run = read_run(file)
    assert all(span.last == 1 for span in run.spans)
    assert [(place.id, place.lane is None) for place in run.late] == [("r0", False), ("r8", True)]


WRONG: dict[str, tuple[list[Any], Any, str]] = {
    "time": (
        ["steps", 3, "time"],
        2.5,
        "steps[3].time: expected a time no earlier than that of the previous step, got 2.5",
    ),
    "not a time": (["steps", 1, "time"], "1", 'steps[1].time: expected a number, 0 or more, got "1"'),
    "no time": (["steps", 1, "time"], float("nan"), "steps[1].time: expected a number, 0 or more, got NaN"),
    "length": (
        ["steps", 0, "chunks", 0, "length"],
        0,
        "steps[0].chunks[0].length: expected a whole number from 1 to 2**53",
    ),
    "true": (
        ["steps", 0, "chunks", 0, "start"],
        True,
        "steps[0].chunks[0].start: expected a whole number from 0 to 2**53",
    ),
    "unknown": (["steps", 0, "chunks", 0, "id"], "x", "steps[0].chunks[0].id: expected an id from requests, at"),
    "no chunk": (["steps", 0, "chunks", 0], 7, "steps[0].chunks[0]: expected an object, got 7"),
    "no chunks": (["steps", 0, "chunks"], None, "steps[0].chunks: expected a list, got null"),
    "no steps": (["steps"], [], "steps: expected a list of one step or more, got []"),
    "finished": (["steps", 0, "finished"], ["r1"], 'steps[0].finished: expected an object, got ["r1"]'),
    "why": (["steps", 0, "finished"], {"r1": 5}, 'steps[0].finished["r1"]: expected a text, got 5'),
    "preempted": (["steps", 0, "preempted"], [1], "steps[0].preempted[0]: expected a text, got 1"),
    "waiting": (["steps", 0, "waiting"], -1, "steps[0].waiting: expected a whole number from 0 to 2**53"),
    "used": (
        ["steps", 0, "pages_used"],
        None,
        "steps[0].pages_used: expected a whole number, 0 or more, got null",
    ),
    "pages": (["pages", "count"], 0, "pages.count: expected a whole number from 1 to 2**53"),
    "requests": (["requests"], [], "requests: expected an object, got []"),
    "prompt": (
        ["requests", "r1", "prompt"],
        1.5,
        'requests["r1"].prompt: expected a whole number from 0 to 2**53',
    ),
    "aborted": (["aborted", 0, "step"], "x", "aborted[0].step: expected a whole number from 0 to 2**53"),
    "model": (["model"], 3, "model: expected a text, got 3"),
    "generated": (
        ["steps", 0, "generated"],
        0.5,
        "steps[0].generated: expected a whole number from 0 to 2**53",
    ),
    "version": (["version"], 1, "expected a run of version 2, got 1; record it again, or update the course"),
    "format": (["format"], "other", "expected a run that `./course batch --record` wrote, got something else"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong(case: str, file: Path, tmp_path: Path) -> None:
    path, value, said = WRONG[case]
    data = json.loads(file.read_text())
    entry = data
    for part in path[:-1]:
        entry = entry[part]
    entry[path[-1]] = value
    file.write_text(json.dumps(data))
    result = CliRunner().invoke(app, ["schedule", str(file), "--out", str(tmp_path / "made")])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith(f"error: {file}: {said}")
    assert list(tmp_path.iterdir()) == [file]
    with speaking("ja"), pytest.raises(CommandError) as caught:
        read_run(file)
    with speaking("ja"):
        assert re.search("です|ください", str(caught.value))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"id": "a"}\n{"id": "b"}\n'])
def test_files_that_are_no_run(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(content)
    result = CliRunner().invoke(app, ["schedule", str(file)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {file}: expected a run that `./course batch --record` wrote")


def test_bad_options(file: Path, tmp_path: Path) -> None:
    bad = {
        f"{file} --out x.pdf": "--out: expected a folder, or a file that ends in .png, .svg, .html, got 'x.pdf'",
        f"{file} --out {file}/x.png": f"--out: expected a folder that can be written to, got {file}: ",
        f"{tmp_path}/none": f"{tmp_path}/none: no such file or folder",
    }
    for arguments, said in bad.items():
        result = CliRunner().invoke(app, ["schedule", *arguments.split()])
        assert result.exit_code in (1, 2)
        assert result.stderr.startswith(f"error: {said}")
