"""`tiny-llm batch`: what it refuses, what it writes, and that nothing is lost or repeated, however it ends."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from learner import Clone, Terminal, run_python, start_python
from typer.testing import CliRunner
from waiting import until

from tiny_llm_course.__main__ import app
from tiny_llm_course.model.loaded_model import Wanted
from tiny_llm_course.serve.batch_input import BatchLine, read_requests
from tiny_llm_course.serve.batch_results import BatchResult, Results
from tiny_llm_course.serve.serving import Options, kinds_of
from tiny_llm_course.tasks.syllabus import tasks
from tiny_llm_course.ui.errors import CommandError
from tiny_llm_course.ui.language import LANGUAGES, Messages, speaking
from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import untrained_config, write_untrained
from tiny_llm_ref import models
from tiny_llm_ref.generate import generate, stream_text
from tiny_llm_ref.sampler import make_sampler
from tiny_llm_ref.serving.distributions import sampler_of
from tiny_llm_ref.serving.request import SamplingParams

COMMAND = ["-m", "tiny_llm_course", "batch"]
CACHES = [kind.name for kind in kinds_of("tiny_llm_ref")]
KEPT = ("PYTHON", "HF_", "TRANSFORMERS_", "FORCE_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(KEPT)}
ENVIRONMENT |= {"HF_HUB_OFFLINE": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8", "TINY_LLM_KERNELS": ""}
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


@pytest.fixture
def device() -> None:
    """The command chooses its own."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One token for each byte, a context of 512; it never ends a text by itself."""
    path = tmp_path_factory.mktemp("checkpoint")
    config = untrained_config()
    write_untrained(path, config, expected_shapes(ModelConfig.from_hf(config)))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": []}))
    return path


def write(file: Path, requests: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests), encoding="utf-8")
    return file


def results_in(file: Path) -> dict[str, dict[str, Any]]:
    """By id, each of which must be there once; every line must be whole."""
    text = file.read_text(encoding="utf-8")
    assert text.endswith("\n")
    found = [json.loads(line) for line in text.removesuffix("\n").split("\n")]
    assert len({result["id"] for result in found}) == len(found)
    return {result["id"]: result for result in found}


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["batch", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def start(*arguments: object) -> Any:
    """A process that runs the command and prints nowhere."""
    with open(os.devnull, "r+") as nothing:
        return start_python([*COMMAND, *map(str, arguments)], Path.cwd(), ENVIRONMENT, [nothing.fileno()] * 3)


MIXED: list[dict[str, Any]] = [
    {"id": "greedy", "prompt": "Once upon a time", "max_tokens": 12},
    {"id": "鰯", "prompt": "昔々、🦜が", "max_tokens": 20, "temperature": 0.9, "top_k": 80, "seed": 7},
    {"prompt": "x" * 90, "max_tokens": 5, "top_p": 0.9, "min_p": 0.01, "temperature": 1, "seed": 2**64 - 1},
    {"id": "penalty", "prompt": "aaaa", "max_tokens": 15, "repetition_penalty": 1.3},
    {"id": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 9},
]


def expected_text(checkpoint: Path, request: dict[str, Any]) -> str:
    """By `generate`, each request alone."""
    model, tokenizer = models.load(checkpoint)
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    sampler = sampler_of(SamplingParams(**{name: request[name] for name in names if name in request}))
    if "prompt" in request:
        prompt = tokenizer.encode(request["prompt"])
    else:
        prompt = tokenizer.apply_chat_template(request["messages"], add_generation_prompt=True)
    return "".join(stream_text(generate(model, prompt, sampler, request["max_tokens"]), tokenizer))


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
    """Of greedy requests. The model itself is a drafter that is always right."""
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
    """What `batch` says, its results, and `viz schedule`: whether a text ends by a token, a string or its length."""
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


BAD = {
    '{"prompt": "x", "temp": 1}': "temp: unknown key; the known keys are max_tokens, temperature, top_k",
    '{"prompt": 5}': "prompt: expected a text of one character or more, got 5",
    '{"prompt": ""}': 'prompt: expected a text of one character or more, got ""',
    '{"prompt": "\\ud83e"}': 'prompt: expected a text of one character or more, got "',
    '{"id": 7, "prompt": "x"}': "id: expected a text of one character or more, got 7",
    '{"prompt": "x", "max_tokens": 0}': "max_tokens: expected a whole number, 1 or more, got 0",
    '{"prompt": "x", "max_tokens": true}': "max_tokens: expected a whole number, 1 or more, got true",
    '{"prompt": "x", "max_tokens": 3.0}': "max_tokens: expected a whole number, 1 or more, got 3.0",
    '{"prompt": "x", "temperature": -0.1}': "temperature: expected a number, 0 or more, got -0.1",
    '{"prompt": "x", "temperature": 1e999}': "temperature: expected a number, 0 or more, got Infinity",
    '{"prompt": "x", "temperature": NaN}': "expected a JSON object, got something that is not JSON: NaN",
    '{"prompt": "x", "top_k": -1}': "top_k: expected a whole number, 0 or more, got -1",
    '{"prompt": "x", "top_p": 0}': "top_p: expected a number above 0 and at most 1, got 0",
    '{"prompt": "x", "min_p": "0.1"}': 'min_p: expected a number from 0 to 1, got "0.1"',
    '{"prompt": "x", "repetition_penalty": 0}': "repetition_penalty: expected a number from 0.01 to 10, got 0",
    '{"prompt": "x", "seed": 18446744073709551616}': "seed: expected a whole number from 0 to 2**64 - 1, got 1844",
    '{"prompt": "x", "stop": ["a", ""]}': "stop: expected a text, or a list of 4 at most, of 1 to 256 ",
    '{"prompt": "x", "stop": ["a", "b", "c", "d", "e"]}': "stop: expected a text, or a list of 4 at most, of 1 to 256 ",
    '{"prompt": "x", "stop_token_ids": [1.5]}': "stop_token_ids[0]: expected a whole number, 0 or more, got 1.5",
    '{"prompt": "x", "stop_token_ids": 5}': "stop_token_ids: expected a list, got 5",
    '{"prompt": "x", "ignore_eos": 1}': "ignore_eos: expected true or false, got 1",
    '{"prompt": "x", "prompt": "y"}': "prompt: given twice",
    '{"prompt": "x", "messages": [{"role": "user", "content": "y"}]}': "expected one of prompt and messages, got both",
    '{"id": "a"}': "expected one of prompt and messages, got both or none",
    '{"messages": []}': "messages: expected a list of one message or more, got []",
    '{"messages": [{"role": "user"}]}': 'messages[0]: expected an object with role and content, got {"role": "user"}',
    '{"messages": [{"role": "me", "content": "y"}]}': "messages[0].role: expected one of system, developer, user, as",
    '{"messages": [{"role": "user", "content": 1}]}': "messages[0].content: expected a text, or a list of text parts",
    '{"messages": [{"role": "user", "content": "y", "name": "z"}]}': "messages[0].name: unknown key; the",
    '{"id": "first", "prompt": "x"}': "id: expected an id that no other line has, but line 1 has 'first', too",
    '["x"]': 'expected a JSON object, got ["x"]',
    '{"prompt": "x"': "expected a JSON object, got something that is not JSON: Expecting ',' delimiter (15)",
    "[" * 100_000: "expected a JSON object, got something that is not JSON: ",
    "": "expected a request, got an empty line",
    "  \r": "expected a request, got an empty line",
    "\udcff": "expected UTF-8, got other bytes; convert the file",
}


@pytest.mark.parametrize("line", BAD, ids=[text[:24] for text in BAD])
def test_bad_lines_are_named_before_anything_is_computed(line: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    for last in (b"\n", b'\n{"prompt": "x"}'):
        file.write_bytes(b'{"id": "first", "prompt": "x"}\n' + line.encode("utf-8", "surrogateescape") + last)
        code, stdout, stderr = call(file, "--model", "/nowhere")
        assert (code, stdout, stderr.count("\n")) == (2, "", 1)
        assert stderr.startswith(f"error: {file}:2: {BAD[line]}")
        assert list(tmp_path.iterdir()) == [file]


def test_what_asks_for_nothing(tmp_path: Path) -> None:
    """As in the server: null, and empty values of names that are not known."""
    line: dict[str, Any] = {"id": None, "prompt": "x", "messages": None, "seed": None, "stop": None, "tools": []}
    (found,) = read_requests(write(tmp_path / "in.jsonl", [line]))
    (plain,) = read_requests(write(tmp_path / "in.jsonl", [{"prompt": "x"}]))
    assert found == plain


def test_messages_as_the_server_takes_them(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "2+2"}, {"type": "text", "text": "?"}]
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "", "reasoning_content": "four"},
    ]
    (found,) = read_requests(write(tmp_path / "in.jsonl", [{"messages": messages}]))
    assert found.prompt == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": ""},
    ]


def test_least_numbers(tmp_path: Path) -> None:
    """Those that are nothing in float32 still mean the likeliest token."""
    (found,) = read_requests(write(tmp_path / "in.jsonl", [{"prompt": "x", "temperature": 1e-40, "top_p": 5e-324}]))
    assert (found.params["temperature"], found.params["top_p"]) == (0.0, 1e-6)


def test_every_key_is_explained_in_both_languages(tmp_path: Path) -> None:
    for language in LANGUAGES:
        for key in BatchLine.model_fields:
            file = write(tmp_path / "in.jsonl", [{key: {}}])
            with speaking(language):
                with pytest.raises(CommandError) as caught:
                    read_requests(file)
                assert str(caught.value).startswith(f"{file}:1: {key}: ")
                assert ("expected" in str(caught.value)) == (language == "en")


def test_what_editors_leave_in_a_file(tmp_path: Path) -> None:
    """A mark of the encoding, ends of lines of Windows, none at the end; other line separators are text."""
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "a\xe2\x80\xa8b"}\r\n{"prompt": "c", "stop": "d"}')
    first, second = read_requests(file)
    assert (first.prompt, second.prompt, second.params["stop"], second.id) == ("a\u2028b", "c", ["d"], "line-2")
    file.write_bytes(b"")
    with pytest.raises(CommandError, match="expected a request on each line, got an empty file"):
        read_requests(file)


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


def test_only_one_writes(tmp_path: Path) -> None:
    file, out = write(tmp_path / "in.jsonl", [{"id": "a", "prompt": "x"}]), tmp_path / "out"
    with Results(out, ["a"]):
        code, _, stderr = call(file, "--out", out, "--model", "/nowhere")
        assert code == 1
        assert stderr.startswith(f"error: --out: another batch is writing to {out}; wait for its end")
    assert not out.exists()  # nothing was written, so nothing is left


def long_batch(tmp_path: Path) -> tuple[Path, list[str]]:
    ids = [f"r{i}" for i in range(40)]
    requests = [{"id": id, "prompt": f"text {id}", "max_tokens": 3 + i % 30} for i, id in enumerate(ids)]
    return write(tmp_path / "in.jsonl", requests), ids


def has_grown(file: Path, size: int) -> bool:
    """Whether a file has so many bytes at least."""
    return file.exists() and file.stat().st_size >= size


def test_killed_at_any_moment(checkpoint: Path, tmp_path: Path) -> None:
    """kill -9, several times: each line that was whole stays as it is, and in the end there is one for each request."""
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
    run = run_python(["-c", INTERRUPTED, "batch", *map(str, options)], tmp_path, ENVIRONMENT, timeout=120)
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
    """It is written, counts, and stays, and then the command ends."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: signal.raise_signal(signal.SIGINT))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Results(tmp_path / "out.jsonl", ["a"]) as results:
            results.add(BatchResult(id="a", text="", finish_reason="stop"))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert results.done == {"a"}
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"id": "a", "text": "", "finish_reason": "stop"}


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


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone.create(tmp_path_factory.mktemp("clones") / "course")


WRITTEN = {  # up to which day of week 3, and what is said then
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
    """As if week 3 were done up to this day."""
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
    """On stubs: week 1 without its loop, which is for one text, and of week 3 the days that are used."""
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
    """It is in the code of each request: a file full of errors would help nobody, and be skipped the next time."""
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


def test_what_the_cache_is_given(checkpoint: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [{"prompt": "x" * 10, "max_tokens": 22}, {"prompt": "y", "max_tokens": 2}])
    said = {
        "--cache slots --max-running 3": "cache slots: 3 slots of 32 positions",
        "--cache pages --max-running 3 --page-size 5": "cache pages: 21 pages of 5 positions (105 together)",
        "--cache pages --pages 4": "cache pages: 4 pages of 16 positions (64 together)",
    }
    for number, (options, expected) in enumerate(said.items()):
        out = tmp_path / str(number)
        code, _, stderr = call(file, "--model", checkpoint, "--out", out, *options.split())
        assert (code, stderr.splitlines()[0]) == (0, expected)
    with pytest.raises(CommandError):
        Options(Wanted("tiny_llm_ref", "story"), max_running=8, token_budget=7)


def test_the_books_pages_are_too_few(tmp_path: Path) -> None:
    """Week 3 day 3 says so of its command: a request is preempted."""
    book = Path(__file__).parents[2] / "book/week_3"
    options = re.search(
        r"batch out/requests\.jsonl --impl mine (--cache pages --pages \d+) ", (book / "day_3.md").read_text()
    )
    assert options is not None
    subprocess.run([sys.executable, book / "d3_requests.py"], cwd=tmp_path, check=True, capture_output=True)
    call(tmp_path / "out/requests.jsonl", *options[1].split(), "--record", tmp_path / "run.json")
    steps = json.loads((tmp_path / "run.json").read_text())["steps"]
    assert any(step["preempted"] for step in steps)
