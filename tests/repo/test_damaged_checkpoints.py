"""Damaged checkpoints, made from `story-draft`: each command says in one line what is wrong, and never hangs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from checkpoint_edits import INDEX, WEIGHTS, Change, delete, edit, edit_weights, write
from click.testing import Result
from learner import run_python
from typer.testing import CliRunner

from tiny_llm_course.commands import app
from tiny_llm_models import bundled
from tiny_llm_ref.models import load_model
from tiny_llm_ref.serving.decoding import next_token
from tiny_llm_ref.serving.request import Request, SamplingParams

ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
TEMPLATE = "tokenizer_config.json"
WHOLE = "expected a whole number, 1 or more, got"


device = pytest.fixture(lambda: None)  # the commands choose their own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(bundled("story-draft"), tmp_path / "model")


def added(*contents: str) -> Change:
    """Return a change that adds tokens to the tokenizer."""

    def change(folder: Path) -> None:
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["added_tokens"] += [ADDED | {"id": 4096 + i, "content": text} for i, text in enumerate(contents)]
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))

    return change


def without_words(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"] |= {"vocab": {}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def named(file: str) -> Change:
    """Return a change that adds an index which names this file of weights. The file exists."""

    def change(folder: Path) -> None:
        shutil.copy(folder / WEIGHTS, folder.parent / "elsewhere.safetensors")
        (folder / "inner").mkdir()
        shutil.copy(folder / WEIGHTS, folder / "inner" / WEIGHTS)
        shutil.copy(folder / WEIGHTS, folder / "weights.npz")
        file_of = {"model.norm.weight": file.format(parent=folder.parent)}
        (folder / INDEX).write_text(json.dumps({"weight_map": file_of}))

    return change


def head(change: Callable[[bytes], bytes]) -> Change:
    """Return a change that replaces the content of the weights' file with the result of `change`."""
    return lambda folder: (folder / WEIGHTS).write_bytes(change((folder / WEIGHTS).read_bytes()))


def large(file: str, size: int) -> Change:
    return lambda folder: os.truncate(folder / file, size)


def as_folder(file: str) -> Change:
    return lambda folder: (delete(file)(folder), (folder / file).mkdir())


def broken_link(folder: Path) -> None:
    delete(WEIGHTS)(folder)
    (folder / WEIGHTS).symlink_to("../../blobs/0123")


DAMAGED: dict[str, tuple[Change, str]] = {
    # config.json
    "endless layers": (
        edit(num_hidden_layers=10**9),
        "num_hidden_layers: expected at most 3, as the files have, got 1",
    ),
    "one layer more": (edit(num_hidden_layers=4), "num_hidden_layers: expected at most 3, as the files have, got 4"),
    "no layers": (edit(num_hidden_layers=0), f"num_hidden_layers: {WHOLE} 0"),
    "endless digits": (write("config.json", b'{"vocab_size": %s}' % (b"9" * 10**6)), "config.json is not JSON: "),
    "endless vocabulary": (edit(vocab_size=10**18), "model.embed_tokens.weight (expected (1000000000000000000, 128)"),
    "no context": (edit(max_position_embeddings=0), "expected a whole number from 2 to 4194304, got 0"),
    "endless context": (edit(max_position_embeddings=10**12), "expected a whole number from 2 to 4194304, got 1000000"),
    "context in text": (edit(max_position_embeddings="1024"), "expected numbers under max_position_embeddings"),
    "deeply nested": (
        write("config.json", b'{"a":' * 10**5),
        "config.json is nested too deeply to be read",
    ),
    "nested and closed": (
        write("config.json", b'{"a":%s1%s}' % (b"[" * 10**5, b"]" * 10**5)),
        "config.json is nested too deeply to be read",
    ),
    "a folder": (as_folder("config.json"), "has no config.json"),
    "empty": (write("config.json", b""), "config.json is not JSON: "),
    "as large as a model": (large("config.json", 10**9), "expected at most 100,000,000 bytes, got 1,000,000,000"),
    "quantization 5": (edit(quantization=5), "quantization: expected an object or null, got 5"),
    "bits 0": (edit(quantization={"bits": 0}), "quantization: bits: expected one of (2, 3, 4, 5, 6, 8), got 0"),
    "bits of a layer": (
        edit(quantization={"lm_head": {"bits": [4]}}),
        "quantization: bits: expected one of (2, 3, 4, 5",
    ),
    "groups in text": (
        edit(quantization={"group_size": "64"}),
        "quantization: group_size: expected one of (16, 32, 64",
    ),
    "quantised by a list": (
        edit(quantization_config={"quant_method": ["gptq"]}),
        "the weights are quantised by ['gptq']",
    ),
    "no heads": (edit(num_attention_heads=0), f"num_attention_heads: {WHOLE} 0"),
    "heads without a partner": (
        edit(num_attention_heads=3, num_key_value_heads=2),
        "num_key_value_heads: expected a divisor of num_attention_heads, 3, got 2",
    ),
    "no key/value heads": (edit(num_key_value_heads=0), f"num_key_value_heads: {WHOLE} 0"),
    "an odd head": (edit(head_dim=63), "head_dim: expected an even number, 2 or more, got 63"),
    "a negative size": (edit(hidden_size=-128), f"hidden_size: {WHOLE} -128"),
    "a fraction": (edit(intermediate_size=256.5), f"intermediate_size: {WHOLE} 256.5"),
    "a truth": (edit(vocab_size=True), f"vocab_size: {WHOLE} True"),
    "eps is NaN": (edit(rms_norm_eps=float("nan")), "rms_norm_eps: expected a number from 0 to 1, got nan"),
    "rope_theta 0": (edit(rope_theta=0), "rope_theta: expected a number from 1 to 1e30, got 0"),
    "rope_theta in text": (edit(rope_theta="1e6"), "rope_theta: expected a number from 1 to 1e30, got '1e6'"),
    "rope_parameters": (edit(rope_parameters=[1]), "rope_parameters: expected an object or null, got [1]"),
    "tied to a word": (edit(tie_word_embeddings="yes"), "tie_word_embeddings: expected true or false, got 'yes'"),
    "types": (edit(model_type=["qwen3"]), "got ['qwen3']; other architectures are not supported"),
    "a word as the end": (
        edit("generation_config.json", eos_token_id="end"),
        "eos_token_id: expected a token id or a l",
    ),
    "no end in a list": (
        edit("generation_config.json", eos_token_id=[None]),
        "eos_token_id: expected a token id or a l",
    ),
    # weights
    "index: above": (named("../elsewhere.safetensors"), "in the same folder, got '../elsewhere.safetensors'"),
    "index: absolute": (
        named("{parent}/elsewhere.safetensors"),
        "expected names of .safetensors files in the same fol",
    ),
    "index: below": (named(f"inner/{WEIGHTS}"), f"in the same folder, got 'inner/{WEIGHTS}'"),
    "index: another format": (named("weights.npz"), "in the same folder, got 'weights.npz'"),
    "index: nested": (write(INDEX, b'{"weight_map":' * 10**5), f"{INDEX} is nested too deeply to be read"),
    "a broken link": (broken_link, f"{WEIGHTS} is not a file, or links to a missing one"),
    "weights in a folder": (as_folder(WEIGHTS), f"{WEIGHTS} is not a file, or links to a missing one"),
    "an endless header": (head(lambda file: b"\xff" * 7 + b"\x0f" + file[8:]), f"{WEIGHTS} is damaged or not complete"),
    "a header with bytes": (
        head(lambda file: file.replace(b"norm", b"n\xffrm", 1)),
        f"{WEIGHTS} is damaged or not com",
    ),
    "half of the file": (head(lambda file: file[: len(file) // 2]), f"{WEIGHTS} is damaged or not complete"),
    "a long name": (edit_weights(**{"x" * 10**5: [1.0]}), "1 unexpected: xxxx"),
    "many axes": (edit_weights(model__norm__weight=np.ones([1] * 50 + [128])), "1 of the wrong shape: model.norm"),
    # the tokenizer
    "a token of 50 MB": (added("x" * 50_000_000), "expected at most 1,000 characters in each, got 50,000,000"),
    "many tokens": (added(*map(str, range(20_000))), "added_tokens: expected a list of at most 20,000 tokens"),
    "an end of 50 MB": (
        edit(TEMPLATE, eos_token="x" * 50_000_000),
        f"{TEMPLATE}: expected at most 4,000,000 bytes, got ",
    ),
    "tokens without weights": (added("<more>"), "expected token ids below the model's vocab_size, 4096, got 4096"),
    "no words": (without_words, "expected a vocabulary, got one that turns text into no tokens"),
    "nested tokenizer": (write("tokenizer.json", b"[" * 10**5), "tokenizer.json is nested too deeply to be read"),
    "nested settings": (write(TEMPLATE, b'{"a":' * 10**5), "its tokenizer cannot be loaded: RecursionError"),
    "settings in a list": (write(TEMPLATE, b"[]"), "its tokenizer cannot be loaded: "),
    "the end is a number": (edit(TEMPLATE, eos_token=5), "its tokenizer cannot be loaded: "),
    "half a template": (edit(TEMPLATE, chat_template="{% for"), "chat template fails with TemplateSyntaxError: "),
    "a template of nothing": (
        edit(TEMPLATE, chat_template="{{ a.b }}"),
        "chat template fails with UndefinedError: 'a' is undefined",
    ),
    "a template's mistake": (
        edit(TEMPLATE, chat_template="{{ 1 / 0 }}"),
        "chat template fails with ZeroDivisionError: ",
    ),
    "an endless template": (
        edit(TEMPLATE, chat_template="{{ 9 ** (9 ** 9) }}"),
        "chat template takes longer than 5 s",
    ),
    "a template in a list": (edit(TEMPLATE, chat_template=[5]), "its tokenizer cannot be loaded: "),
    "template, not UTF-8": (
        write("chat_template.jinja", b"\xff"),
        "its tokenizer cannot be loaded: UnicodeDecodeError",
    ),
}


def run(*words: object, input: str = "") -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--lang", "en"], input=input)


def check(result: Result, expected: str) -> None:
    """Check that a command ended normally, with one line on stderr. A traceback would be an exception of its own."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert expected in line
    assert len(line) < 1300


@pytest.mark.parametrize(("damage", "expected"), DAMAGED.values(), ids=DAMAGED)
def test_one_line_at_the_start(folder: Path, damage: Change, expected: str, capfd: pytest.CaptureFixture[str]) -> None:
    damage(folder)
    check(run("main", "--model", folder, "--prompt", "Once"), expected)
    assert capfd.readouterr() == ("", "")  # nor does a library say something by itself


@pytest.mark.parametrize(
    "command",
    ["chat --layers kernels", "serve --port 0", "batch {requests}", "batch {requests} --model story --draft {model}"],
)
def test_every_command(folder: Path, command: str) -> None:
    edit(quantization=5)(folder)
    requests = folder.parent / "requests.jsonl"
    requests.write_text('{"prompt": "Once"}\n')
    words = command.format(requests=requests, model=folder).split()
    result = run(*words, *([] if "--draft" in words else ["--model", folder]))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].endswith("config.json: quantization: expected an object or null, got 5")


def test_links_of_a_download(folder: Path) -> None:
    """In Hugging Face's cache, the files of a snapshot, also those of an index, are links into another folder."""
    expected = load_model(folder)(mx.array([[1, 2, 3]]))
    mx.eval(expected)
    names = dict.fromkeys(mx.load(str(folder / WEIGHTS)), "model-1-of-1.safetensors")
    (folder / WEIGHTS).rename(folder / "model-1-of-1.safetensors")
    write(INDEX, json.dumps({"weight_map": names}).encode())(folder)
    blobs, snapshot = folder.parent / "blobs", folder.parent / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, file in enumerate(folder.iterdir()):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    assert mx.array_equal(load_model(snapshot)(mx.array([[1, 2, 3]])), expected)


# Weights that can be read, but are not finite.

NOT_FINITE = "the model's logits are not finite: its weights are damaged, or too large for their number format; "


def not_finite(value: float) -> Change:
    """Return a change that puts this value into the last norm, on which every logit depends."""

    def change(folder: Path) -> None:
        norm = mx.load(str(folder / WEIGHTS))["model.norm.weight"]
        norm[5] = value
        edit_weights(model__norm__weight=norm)(folder)

    return change


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("options", [[], ["--temp", "0"], ["--raw"]], ids=str)
def test_logits_of_main(folder: Path, value: float, options: list[str]) -> None:
    not_finite(value)(folder)
    check(run("main", "--model", folder, "--prompt", "Once", *options), NOT_FINITE)


def test_logits_of_chat(folder: Path) -> None:
    not_finite(float("nan"))(folder)
    result = run("chat", "--model", folder, input="Hello\nHello\n")
    assert (result.exit_code, result.stdout) == (1, "")
    sampling, error = result.stderr.splitlines()
    assert sampling.startswith("sampling")
    assert NOT_FINITE in error


@pytest.mark.parametrize("options", ["", "--draft ngram", "--draft {model}", "--model story --draft {model}"])
def test_logits_of_batch(folder: Path, options: str) -> None:
    """No result is written, so after a new download of the weights the command serves all requests."""
    not_finite(float("nan"))(folder)
    requests = folder.parent / "requests.jsonl"
    requests.write_text('{"prompt": "Once"}\n')
    model = [] if "--model" in options else ["--model", folder]
    result = run("batch", requests, *model, *options.format(model=folder).split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert NOT_FINITE in result.stderr.splitlines()[-1]
    assert not (folder.parent / "requests.out.jsonl").exists()


def test_logits_in_japanese(folder: Path) -> None:
    not_finite(float("nan"))(folder)
    result = CliRunner().invoke(app, ["main", "--model", str(folder), "--prompt", "a", "--lang", "ja"])
    assert "ロジットに NaN か無限大があります" in result.stderr


def test_logits_of_own_code(folder: Path, tmp_path: Path) -> None:
    """The cause may be a learner's code. The test runs in a process, because --fill changes the learner's package."""
    not_finite(float("nan"))(folder)
    words = ["-m", "tiny_llm_course", "main", "--impl", "mine", "--fill", "--model", str(folder), "--prompt", "Once"]
    result = run_python([*words, "--lang", "en"], tmp_path, os.environ, timeout=600)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: the model's logits are not finite: your code computes NaN or infinity somewhere, or")


def test_probabilities_are_json() -> None:
    """However far apart logits are: OpenAI's API reports -9999 for a token that is practically impossible."""
    request = Request("a", [1], SamplingParams(1, num_logprobs=2))
    next_token(request, mx.array([[3e38, -3e38]]))
    (found,) = request.logprobs
    assert [each.logprob for each in found.top] == [0.0, -9999.0]
