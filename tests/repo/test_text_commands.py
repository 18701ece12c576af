"""`tiny-llm main`, run as a user runs it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from inspect import signature
from pathlib import Path

import mlx.core as mx
import pytest
from text_runs import COMMAND, OVERHEAD, PROMPT, Reference, as_line, call, checkpoint, environment, reference, run

import tiny_llm_ref
from tiny_llm_course.generation.text_commands import DEFAULT_PROMPT, main
from tiny_llm_ref import models
from tiny_llm_ref.generate import generate_simple, stream_text
from tiny_llm_ref.sampler import greedy

__all__ = ["checkpoint", "reference"]

LENGTH = len(PROMPT.encode())  # in tokens, which are bytes
STATISTICS = """
prompt +{prompt} tokens +[0-9.]+ tok/s   first token after [0-9.]+ s
generated +{generated} tokens +[0-9.]+ tok/s   {ended}
memory +[0-9]+ MB at most
"""


device = pytest.fixture(lambda: None)  # the commands choose their own: nothing to repeat on each


@pytest.fixture(scope="module")
def without_template(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("without") / "template"
    shutil.copytree(checkpoint, path)
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return path


def assert_statistics(stderr: str, prompt: int, generated: int, ended: str) -> None:
    expected = STATISTICS.format(prompt=prompt, generated=generated, ended=re.escape(ended))
    assert re.fullmatch(expected, stderr), stderr


def test_streams_and_reports(checkpoint: Path) -> None:
    half = Reference(checkpoint, mx.float16)
    half.sample(temperature=0.9, top_k=80, top_p=0.95, min_p=0.001, repetition_penalty=1.1, seed=7)
    sampling = ["--temp", 0.9, "--top-k", 80, "--top-p", 0.95, "--min-p", 0.001, "--repetition-penalty", 1.1]
    options = ["--model", checkpoint, "--dtype", "float16", "--raw", "--prompt", PROMPT, "--max-tokens", 30]
    code, stdout, stderr = run("main", *options, "--seed", 7, *sampling)
    assert (code, stdout) == (0, as_line(half.text(PROMPT, 30)))
    assert_statistics(stderr, LENGTH, 30, "--max-tokens reached")


def test_ascii_only_output(checkpoint: Path, reference: Reference) -> None:
    expected = reference.sample(temperature=0.7, seed=8).text(PROMPT, 30)
    options = ["--raw", "--prompt", PROMPT, "--max-tokens", 30, "--seed", 8]
    code, stdout, _ = run("main", "--model", checkpoint, *options, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert (code, stdout) == (0, as_line(expected).decode().encode("ascii", "replace"))


def test_prompt_from_stdin_and_stop_strings(checkpoint: Path, reference: Reference) -> None:
    text = reference.sample(temperature=0.7, seed=9).text(PROMPT, 60)
    stop = text[20:22]
    options = ["--raw", "--seed", 9, "--max-tokens", 60, "--stop", "never seen", "--stop", stop]
    code, stdout, stderr = run("main", "--model", checkpoint, *options, stdin=f"{PROMPT}\n")
    assert (code, stdout) == (0, as_line(text[: text.index(stop)]))
    assert "stop string found" in stderr


def test_chat_template_is_the_default(checkpoint: Path) -> None:
    options = ["--prompt", PROMPT, "--system", "賢く", "--max-tokens", 0]
    code, stdout, stderr = call("main", "--model", checkpoint, *options)
    assert (code, stdout) == (0, b"")
    tokens = LENGTH + OVERHEAD + len("U" + "system\n" + "E\n") + len("賢く".encode())
    assert stderr.splitlines()[1:3] == [
        f"prompt     {tokens:>6} tokens",
        f"generated  {0:>6} tokens {'':>14}   --max-tokens reached",
    ]


def test_raw_without_a_template_until_the_context_is_full(without_template: Path) -> None:
    code, _, stderr = call("main", "--model", without_template, "--prompt", "x" * 508, "--temp", 0)
    assert code == 0
    assert_statistics(stderr, 508, 4, "context of 512 tokens full")


def test_the_bundled_model_is_the_default() -> None:
    code, stdout, stderr = run("main", "--max-tokens", 12, "--temp", 0)
    assert code == 0
    assert "prompt: Tell me a short story." in stderr
    model, tokenizer = models.load("story", mx.float32)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": DEFAULT_PROMPT}], add_generation_prompt=True)
    assert stdout == as_line("".join(stream_text(generate_simple(model, prompt, greedy, 12), tokenizer)))
    assert re.fullmatch(rb"[A-Z][A-Za-z ,.]+\n", stdout)


def test_closed_pipe(checkpoint: Path) -> None:
    command = [sys.executable, *COMMAND, "main", "--model", str(checkpoint), "--prompt", "x", "--seed", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout
        assert process.stderr
        assert len(process.stdout.read(10)) == 10
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(120) == 0


BAD_VALUES = {
    "--temp -1": "--temp: expected a number, 0 or more, got -1.0",
    "--temp nan": "--temp: expected a number, 0 or more, got nan",
    "--top-k -1": "--top-k: expected a whole number, 0 or more, got -1",
    "--top-p 1.5": "--top-p: expected a number above 0 and at most 1, got 1.5",
    "--min-p 2": "--min-p: expected a number from 0 to 1, got 2.0",
    "--repetition-penalty 0": "--repetition-penalty: expected a number from 0.01 to 10, got 0.0",
    "--max-tokens -3": "--max-tokens: expected 0 or more, got -3",
    "--seed -1": "--seed: expected a whole number from 0 to 2**64 - 1, got -1",
    "--stop=": "--stop: expected a text, or a list of at most 4 texts, of 1 to 256 characters each, got ''",
    "--impl theirs": "--impl: expected one of ref, mine, got 'theirs'",
    "--dtype int8": "--dtype: expected one of float32, bfloat16, float16, got 'int8'",
    "--prompt=": "the prompt: expected some text, got none; give --prompt TEXT or pipe a text in",
    "--raw --system x": "--system: expected a chat, got --raw; leave one of them out",
}


@pytest.mark.parametrize("options", BAD_VALUES)
def test_bad_values_before_anything_is_loaded(options: str) -> None:
    code, stdout, stderr = call("main", "--model", "/nowhere", *options.split())
    assert (code, stdout, stderr.count("\n")) == (2, b"", 1)
    assert stderr.startswith(f"error: {BAD_VALUES[options]}")


def test_prompt_and_checkpoint_that_do_not_go_together(checkpoint: Path, without_template: Path) -> None:
    no_template = "expected a checkpoint with a chat template, got one without"
    too_long = "the prompt: expected fewer tokens than this model's context of 512, got 512; shorten the prompt"
    calls: dict[str, list[object]] = {
        too_long: ["main", "--model", checkpoint, "--raw", "--prompt", "x" * 512],
        "the text: expected UTF-8, got other bytes": ["main", "--model", checkpoint, "--prompt", "\udcff"],
        f"--chat: {no_template}": ["main", "--model", without_template, "--prompt", "x", "--chat"],
        f"--system: {no_template}": ["main", "--model", without_template, "--prompt", "x", "--system", "y"],
        f"--model: {no_template}": ["chat", "--model", without_template],
    }
    for message, arguments in calls.items():
        code, stdout, stderr = call(*arguments)
        assert (code, stdout, stderr.count("\n")) == (2, b"", 1)
        assert stderr.startswith(f"error: {message}")


def test_loading_errors(tmp_path: Path) -> None:
    """Tests of damaged files are in test_damaged_checkpoints.py."""
    expected = {
        tmp_path / "nowhere": "no checkpoint directory",
        "some/model": "neither a directory nor downloaded yet, and the Hub cannot be reached",
    }
    for model, message in expected.items():
        code, stdout, stderr = run("main", "--model", model, "--prompt", "x", HF_HOME=str(tmp_path / "hub"))
        assert (code, stdout, stderr.count("\n")) == (1, b"", 1)
        assert stderr.startswith("error: --model: ")
        assert message in stderr


def test_the_reference_has_a_cache(checkpoint: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = reference.sample(temperature=0.8, seed=3).text(PROMPT, 20)
    monkeypatch.setattr(tiny_llm_ref.generate, "generate_simple", None)
    options = ["--raw", "--prompt", PROMPT, "--temp", 0.8, "--seed", 3, "--max-tokens", 20]
    code, stdout, _ = call("main", "--impl", "ref", "--model", checkpoint, *options)
    assert (code, stdout) == (0, as_line(expected))


def test_help_explains_every_option() -> None:
    code, stdout, _ = run("main", "--help", COLUMNS="200")
    assert code == 0
    for name in [*signature(main).parameters, "chat"]:
        assert f"--{name.replace('_', '-')}" in stdout.decode()
    code = "import sys, tiny_llm_course.__main__; print({name.partition('.')[0] for name in sys.modules})"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment()).stdout
    assert "typer" in imported
    assert not re.search("'(mlx|mlx_lm|transformers|numpy|pydantic|tiny_llm_given)'", imported)
