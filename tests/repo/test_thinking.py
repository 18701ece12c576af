"""`main`, `chat` and `batch` with models that think, and with a checkpoint's own settings of the sampler."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from text_runs import OVERHEAD, PROMPT, Reference, as_line, call, checkpoint, in_terminal
from thinking_checkpoint import ALWAYS, ANSWER, BY_ITSELF, COUNT, SWITCHED, THINKING, write_thinking

from tiny_llm_course.ui.terminal import COLOURS
from tiny_llm_ref.models import load
from tiny_llm_ref.thinking import Thinking

__all__ = ["checkpoint"]

QUESTION = "2+2? <think>"  # a tag in a question does not begin the thinking of the answer
SHOWN = f"thinking:\n{THINKING}\n\nanswer:\n"
Maker = Callable[[str], Path]


device = pytest.fixture(lambda: None)  # the commands choose their own: nothing to repeat on each


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Return a function that makes a checkpoint with a chat template, once per template."""
    known: dict[str, Path] = {}

    def make(template: str) -> Path:
        if template not in known:
            known[template] = write_thinking(tmp_path_factory.mktemp("thinking") / "model", template)
        return known[template]

    return make


def ask(model: Path, *options: object) -> tuple[int, str, str]:
    code, stdout, stderr = call("main", "--model", model, "--prompt", QUESTION, *options)
    return code, stdout.decode(), stderr


@pytest.mark.parametrize(
    ("template", "options", "thinks"),
    [
        (SWITCHED, [], False),
        (SWITCHED, ["--no-think"], False),
        (SWITCHED, ["--think"], True),
        (ALWAYS, [], True),
        (ALWAYS, ["--think"], True),
        (BY_ITSELF, [], True),
    ],
)
def test_thinking_is_not_part_of_the_answer(made: Maker, template: str, options: list[str], thinks: bool) -> None:
    code, stdout, stderr = ask(made(template), *options)
    assert (code, stdout) == (0, f"{ANSWER}\n")
    assert ((SHOWN in stderr), (THINKING in stderr)) == (thinks, thinks)
    assert (f"thinking   {COUNT:>6} of these tokens" in stderr) == thinks
    assert "end of text" in stderr


NO_THINKING = "expected a checkpoint whose chat template can turn thinking on, got one without thinking"


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("story", ["--think"], f"--think: {NO_THINKING}; leave --think out"),
        (BY_ITSELF, ["--think"], f"--think: {NO_THINKING}; leave --think out"),
        (ALWAYS, ["--no-think"], "--no-think: expected a checkpoint whose thinking can be turned off, got one that al"),
        (SWITCHED, ["--think", "--raw"], "--think: expected a chat, got --raw; leave one of them out"),
    ],
)
def test_thinking_that_cannot_be(made: Maker, model: str, options: list[str], message: str) -> None:
    code, stdout, stderr = ask(Path(model) if model == "story" else made(model), *options)
    assert (code, stdout, stderr.count("\n")) == (2, "", 1)
    assert stderr.startswith(f"error: {message}")


def test_a_model_without_thinking_may_be_told_so() -> None:
    common = ["main", "--prompt", "Tell me a short story.", "--max-tokens", 5, "--seed", 3]
    code, stdout, stderr = call(*common, "--no-think")
    assert (code, "thinking" in stderr) == (0, False)
    assert stdout == call(*common)[1] != b""


@pytest.mark.parametrize(
    ("template", "options", "advice"),
    [(SWITCHED, ["--think"], ", or leave --think out"), (ALWAYS, [], "")],
)
def test_no_room_for_an_answer(made: Maker, template: str, options: list[str], advice: str) -> None:
    code, stdout, stderr = ask(made(template), "--max-tokens", 4, *options)
    assert (code, stdout) == (0, "")
    assert stderr.startswith("thinking:\nTwo and\ntwo")
    assert "\nanswer:" not in stderr
    reached = "--max-tokens reached before the answer: the model was still thinking; use --max-tokens 4096"
    assert f"{reached}{advice}\n" in stderr


def test_thinking_has_more_tokens_by_default(made: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def generate(model: Any, prompt: Any, sampler: Any, max_tokens: int, *others: Any) -> list[int]:
        found.append(max_tokens)
        return []

    monkeypatch.setattr("tiny_llm_ref.generate.generate", generate)
    for options in ([], ["--think"], ["--raw"], ["--think", "--max-tokens", "7"]):
        ask(made(SWITCHED), *options)
    ask(made(ALWAYS))
    assert found == [400, 4096, 400, 7, 4096]


def test_stop_strings_are_the_answers(made: Maker) -> None:
    """A stop string in the thinking does not end the answer."""
    _, stdout, stderr = ask(made(SWITCHED), "--think", "--stop", "two", "--stop", " four")
    assert stdout == "It is\n"
    assert SHOWN in stderr
    assert "stop string found" in stderr


def test_raw_text_is_shown_as_it_is(made: Maker) -> None:
    code, stdout, _ = ask(made(ALWAYS), "--raw", "--prompt", "2+2?\n")
    assert (code, stdout) == (0, f"<think>\n{THINKING} \n</think>\n\n{ANSWER}\n")


def test_dimmed_on_a_terminal(made: Maker) -> None:
    terminal = in_terminal("chat", "--model", made(SWITCHED), "--think", TERM="xterm-256color")
    with closing(terminal):
        terminal.wait_for_next("> ")
        terminal.send("2+2?\n")
        shown = terminal.wait_for_next(r"end of text.*> ")
        dimmed = f"\x1b[38;5;{COLOURS['dim']}m"
        assert f"{dimmed}thinking:\n\x1b[0m{dimmed}Two\x1b[0m" in shown
        assert f"answer:\n\x1b[0m{ANSWER}\n" in shown
        first = len("2+2?") + OVERHEAD
        assert f"{first} tokens in" in shown
        terminal.send("Again.\n")
        kept = len(["It", " is", " four."]) + len("E\n")  # and not what it thought
        assert f"{first + kept + len('Again.') + OVERHEAD} tokens in" in terminal.wait_for_next("end of text.*> ")


def test_a_mark_of_the_thinking_within_the_answer(made: Maker) -> None:
    """Only text at the beginning of an answer is thinking."""
    _, tokenizer = load(made(SWITCHED))
    thoughts = Thinking(tokenizer).thoughts(thinks=False)
    tokens = tokenizer.encode("So: <think>!</think>")
    assert [thoughts.take(token) for token in tokens] == [None] * len(tokens)
    assert (thoughts.count, thoughts.is_open) == (0, False)


@pytest.mark.parametrize("text", ["<think>\n\n</think>\n\nYes", "<think></think>Yes", "<think>\n \n</think>\nYes"])
def test_an_empty_thought(made: Maker, text: str) -> None:
    _, tokenizer = load(made(SWITCHED))
    thoughts = Thinking(tokenizer).thoughts(thinks=True)
    taken = [thoughts.take(token) for token in tokenizer.encode(text)]
    assert taken == [""] * (len(taken) - 3) + [None] * 3


def test_batch_keeps_thinking_apart(made: Maker, tmp_path: Path) -> None:
    asked = [
        {"id": "chat", "messages": [{"role": "user", "content": "2+2?"}]},
        {"id": "text", "prompt": "2+2?\n", "max_tokens": 3},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, asked)))
    for template, thinks in ((ALWAYS, True), (SWITCHED, False)):
        out = tmp_path / f"{thinks}.out"
        code, _, stderr = call("batch", tmp_path / "a.jsonl", "--out", out, "--model", made(template))
        assert code == 0, stderr
        results = {result["id"]: result for result in map(json.loads, out.read_text().splitlines())}
        assert results["chat"]["text"] == ANSWER
        assert results["chat"].get("reasoning_content") == (THINKING if thinks else None)
        assert results["text"]["text"] == "<think>\nTwo and"


# Settings of the sampler.

QWEN3 = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}


@pytest.fixture(scope="module")
def advised(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that copies the checkpoint and adds such a generation_config.json."""

    def make(**settings: object) -> Path:
        path = tmp_path_factory.mktemp("advised")
        for file in checkpoint.iterdir():
            (path / file.name).symlink_to(file)
        (path / "generation_config.json").unlink()
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [], **settings}))
        return path

    return make


@pytest.mark.parametrize(
    ("advice", "options", "expected", "told"),
    [
        (QWEN3, [], {"temperature": 0.6, "top_k": 20, "top_p": 0.95}, "temperature 0.6, top_k 20, top_p 0.95"),
        (QWEN3, ["--temp", 1.5], {"temperature": 1.5, "top_k": 20, "top_p": 0.95}, "top_k 20, top_p 0.95"),
        (QWEN3, ["--temp", 0.9, "--top-k", 0, "--top-p", 1], {"temperature": 0.9}, ""),
        (QWEN3 | {"do_sample": False}, [], {"temperature": 0}, "temperature 0.0"),
        (QWEN3, ["--temp", 0], {"temperature": 0}, ""),  # top-k and top-p have no effect
        ({"repetition_penalty": 1.4}, [], {"temperature": 0.7, "repetition_penalty": 1.4}, "repetition_penalty 1.4"),
        ({}, [], {"temperature": 0.7}, ""),
    ],
)
def test_the_checkpoints_sampling(
    advised: Callable[..., Path],
    checkpoint: Path,
    advice: dict[str, Any],
    options: list[object],
    expected: dict[str, float],
    told: str,
) -> None:
    reference = Reference(checkpoint, mx.float32)
    text = reference.sample(**expected, seed=7).text(PROMPT, 40)
    common = ["--raw", "--prompt", PROMPT, "--max-tokens", 40, "--seed", 7, "--dtype", "float32"]
    code, stdout, stderr = call("main", "--model", advised(**advice), *common, *options)
    assert (code, stdout) == (0, as_line(text))
    note = f"sampling   {told}, as the checkpoint's generation_config.json says\n"
    assert stderr.endswith(note) if told else "sampling" not in stderr


def test_a_damaged_generation_config(advised: Callable[..., Path]) -> None:
    code, stdout, stderr = call("main", "--model", advised(top_p=3), "--prompt", "x")
    assert (code, stdout, stderr.count("\n")) == (1, b"", 1)
    assert "generation_config.json: top_p: Input should be less than or equal to 1, got 3; correct it, or" in stderr
