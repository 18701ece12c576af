"""`tiny-llm batch`: each request gets the result that it gets alone, and the command's summary counts all requests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from batches import COMMAND, ENVIRONMENT, MIXED, call, checkpoint, expected_text, long_batch, results_in, write
from learner import Terminal
from typer.testing import CliRunner

from tiny_llm_course.__main__ import app
from tiny_llm_course.model.loaded_model import Wanted
from tiny_llm_course.serve.serving import Options, kinds_of
from tiny_llm_course.ui.errors import CommandError
from tiny_llm_ref import models
from tiny_llm_ref.generate import generate
from tiny_llm_ref.sampler import make_sampler

__all__ = ["checkpoint"]

CACHES = [kind.name for kind in kinds_of("tiny_llm_ref")]


device = pytest.fixture(lambda: None)  # the command chooses its own


@pytest.mark.parametrize("cache", CACHES)
def test_each_request_gets_what_it_would_get_alone(cache: str, checkpoint: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", MIXED)
    sizes = ["--max-running", 2, "--token-budget", 7, "--page-size", 4, "--check"]
    code, stdout, stderr = call(file, "--model", checkpoint, "--dtype", "float32", "--cache", cache, *sizes)
    assert (code, stdout) == (0, "")
    assert f"cache {cache}: " in stderr
    found = results_in(tmp_path / "in.out.jsonl")
    assert found.keys() == {"greedy", "鰯", "line-3", "penalty", "chat"}
    for result, request in zip((found[r.get("id", "line-3")] for r in MIXED), MIXED, strict=True):
        assert list(result) == ["id", "text", "finish_reason", "usage"]
        assert result["text"] == expected_text(checkpoint, request)
        assert result["finish_reason"] == "length"
        assert result["usage"]["completion_tokens"] == request["max_tokens"]
    usage = {"prompt_tokens": 90, "completion_tokens": 5, "total_tokens": 95}
    assert found["line-3"]["usage"] == usage


@pytest.mark.parametrize("cache", ["slots", "prefix"])
@pytest.mark.parametrize("draft", ["ngram", "the same model"])
def test_guesses_change_no_text(draft: str, cache: str, checkpoint: Path, tmp_path: Path) -> None:
    """The requests are greedy. The model itself serves as a drafter that is always right."""
    greedy = [request for request in MIXED if "temperature" not in request]
    file = write(tmp_path / "in.jsonl", greedy)
    name = checkpoint if draft == "the same model" else draft
    options = ["--model", checkpoint, "--dtype", "float32", "--page-size", 4, "--num-drafts", 3, "--draft", name]
    assert call(file, *options, "--cache", cache, "--check")[0] == 0
    found = results_in(tmp_path / "in.out.jsonl")
    for request in greedy:
        assert found[request["id"]]["text"] == expected_text(checkpoint, request)
        details = found[request["id"]]["usage"]["completion_tokens_details"]
        if draft != "ngram":
            assert details["accepted_prediction_tokens"] >= request["max_tokens"] // 2
            assert details["rejected_prediction_tokens"] <= details["accepted_prediction_tokens"]


@pytest.mark.parametrize("draft", [(), ("--draft", "ngram", "--num-drafts", 3)], ids=["plain", "guesses"])
def test_everybody_counts_the_same_generated_tokens(
    draft: tuple[object, ...], checkpoint: Path, tmp_path: Path
) -> None:
    """`batch`, its results and `viz schedule` agree, whether a text ends at a token, a string or its largest length."""
    text, (model, tokenizer) = expected_text(checkpoint, MIXED[0]), models.load(checkpoint)
    tokens = list(generate(model, tokenizer.encode(MIXED[0]["prompt"]), make_sampler(0.0), 12))
    ends = [
        MIXED[0] | {"id": "token", "stop_token_ids": tokens[7:8]},
        MIXED[0] | {"id": "string", "stop": text[4:6]},
    ]
    file, record = write(tmp_path / "in.jsonl", [*MIXED, *ends]), tmp_path / "run.json"
    code, _, stderr = call(file, "--model", checkpoint, "--dtype", "float32", "--record", record, *draft)
    assert code == 0
    said = re.search(r"7 requests, (\d+) tokens", stderr)
    found = results_in(tmp_path / "in.out.jsonl")
    assert [found[id]["finish_reason"] for id in ("token", "string", "greedy")] == ["stop", "stop", "length"]
    generated = sum(result["usage"]["completion_tokens"] for result in found.values())
    drawn = CliRunner().invoke(
        app, ["viz", "schedule", str(record), "--out", str(tmp_path / "run.html"), "--lang", "en"]
    )
    shown = re.search(r"generated tokens +(\d+)\n", drawn.stdout)
    assert said
    assert shown, drawn.output
    assert int(said[1]) == int(shown[1]) == generated


def test_who_cannot_guess(checkpoint: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", MIXED[:1])
    for draft, said in (
        ("nobody", "--draft: no checkpoint directory 'nobody'"),
        ("story-draft", "a vocabulary of 259"),
    ):
        code, _, stderr = call(file, "--model", checkpoint, "--draft", draft)
        assert code
        assert said in stderr


def test_stop_strings_and_what_only_the_engine_can_refuse(checkpoint: Path, tmp_path: Path) -> None:
    text = expected_text(checkpoint, MIXED[0])
    requests = [
        {"id": "long", "prompt": "x" * 512},
        MIXED[0] | {"id": "stop", "stop": text[4:6]},
        MIXED[0] | {"id": "stops", "stop": ["never seen", text[4:6]]},
        {"id": "role", "messages": [{"role": "user", "content": "x" * 600}]},
    ]
    code, _, stderr = call(write(tmp_path / "in.jsonl", requests), "--model", checkpoint, "--dtype", "float32")
    found = results_in(tmp_path / "in.out.jsonl")
    assert code == 0
    assert "2 of the results are errors" in stderr
    for id in ("long", "role"):
        assert (found[id]["finish_reason"], found[id]["text"]) == ("error", "")
        assert found[id]["error"].startswith("prompt: expected fewer than 512 tokens")
    for id in ("stop", "stops"):
        assert (found[id]["text"], found[id]["finish_reason"]) == (text[: text.index(text[4:6])], "stop")


def test_places_that_do_not_work(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [{"id": "a", "prompt": "x"}])
    places = {
        f"--out {file}": "requests, --out and --record: expected different files, got one of them twice",
        f"--out {tmp_path / 'o'} --record {tmp_path}/./o": "requests, --out and --record: expected different files",
        f"--out {tmp_path}": f"--out: expected a file to which lines can be added, got {tmp_path}",
        f"--out {tmp_path}/no/o": f"{tmp_path}/no/o: expected a file in a folder that exists",
        "--max-running 0": "--max-running: expected 1 or more, got 0",
        "--pages 0": "--pages: expected 1 or more, got 0",
        "--page-size 0": "--page-size: expected 1 or more, got 0",
        "--token-budget 3": "--token-budget: expected at least 16, one for each request that runs (--max-runnin",
        "--cache fast": f"--cache: expected one of {', '.join(CACHES)}, got 'fast'",
        "--cache slots --pages 9": "--pages: expected a paged cache, got --cache slots; leave one of them out",
        "--model /nowhere": "--model: no checkpoint directory '/nowhere'",
    }
    for options, said in places.items():
        code, _, stderr = call(file, *options.split())
        assert code == (1 if "nowhere" in options else 2)
        assert stderr.startswith(f"error: {said}")
    assert list(tmp_path.iterdir()) == [file]


def test_the_bar_in_a_terminal(checkpoint: Path, tmp_path: Path) -> None:
    file, _ = long_batch(tmp_path)
    environment = ENVIRONMENT | {"TERM": "xterm-256color", "COLUMNS": "100", "LANG": "C.UTF-8"}
    terminal = Terminal([sys.executable, *COMMAND, str(file), "--model", str(checkpoint)], tmp_path, environment)
    terminal.wait_for("waiting")
    assert terminal.exit_code() == 0
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.raw)
    assert re.search(r"\d+/40 +[\d.]+ tok/s +running \d+ +waiting \d+", plain)
    tokens = sum(3 + i % 30 for i in range(40))
    assert re.search(rf"40 requests, {tokens} tokens in [\d.]+ s, [\d.]+ tok/s; wrote", plain)


def test_what_the_cache_is_given(checkpoint: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [{"prompt": "x" * 10, "max_tokens": 22}, {"prompt": "y", "max_tokens": 2}])
    said = {
        "--cache slots --max-running 3": "cache slots: 3 slots of 32 positions",
        "--cache pages --max-running 3 --page-size 5": "cache pages: 21 pages of 5 positions (105 in total)",
        "--cache pages --pages 4": "cache pages: 4 pages of 16 positions (64 in total)",
    }
    for number, (options, expected) in enumerate(said.items()):
        out = tmp_path / str(number)
        code, _, stderr = call(file, "--model", checkpoint, "--out", out, *options.split())
        assert (code, stderr.splitlines()[0]) == (0, expected)
    with pytest.raises(CommandError):
        Options(Wanted("tiny_llm_ref", "story"), max_running=8, token_budget=7)


def test_the_books_pages_are_too_few(tmp_path: Path) -> None:
    """Week 3 day 3 says that its command preempts a request."""
    book = Path(__file__).parents[2] / "book/week_3"
    options = re.search(
        r"batch out/requests\.jsonl --impl mine (--cache pages --pages \d+) ", (book / "day_3.md").read_text()
    )
    assert options is not None
    subprocess.run([sys.executable, book / "d3_requests.py"], cwd=tmp_path, check=True, capture_output=True)
    call(tmp_path / "out/requests.jsonl", *options[1].split(), "--record", tmp_path / "run.json")
    steps = json.loads((tmp_path / "run.json").read_text())["steps"]
    assert any(step["preempted"] for step in steps)
