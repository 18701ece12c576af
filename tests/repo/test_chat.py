"""`tiny-llm chat`, and Ctrl-C, in a terminal and without one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from learner import Terminal
from text_runs import OVERHEAD, Reference, as_line, checkpoint, in_terminal, reference, run
from waiting import until

from tiny_llm_course.generation.chat import Chat
from tiny_llm_course.ui.language import Messages

__all__ = ["checkpoint", "reference"]


device = pytest.fixture(lambda: None)  # the commands choose their own


def test_chat_keeps_what_was_said(checkpoint: Path, reference: Reference) -> None:
    lines = [
        "こんにちは",
        "",
        "/help",
        "/nonsense",
        "Again",
        "/system 短く",
        "Third",
        "/reset",
        "Last",
        "/exit",
        "never",
    ]
    code, stdout, stderr = run("chat", "--model", checkpoint, "--max-tokens", 20, "--seed", 5, stdin="\n".join(lines))
    reference.sample(temperature=0.7, seed=5)
    system = {"role": "system", "content": "短く"}
    said: list[dict[str, str]] = []
    answers = []
    for question in ["こんにちは", "Again", "Third"]:
        said.append({"role": "user", "content": question})
        answers.append(reference.text([system, *said] if question == "Third" else said, 20))
        said.append({"role": "assistant", "content": answers[-1]})
    answers.append(reference.text([system, {"role": "user", "content": "Last"}], 20))
    assert (code, stdout) == (0, b"".join(map(as_line, answers)))
    for part in ["/reset ", "no command /nonsense; /help", "system prompt: 短く", "conversation is forgotten"]:
        assert part in stderr
    statistics = re.findall(r"^(\d+) tokens in, 20 out at [0-9.]+ tok/s; --max-tokens reached$", stderr, re.M)
    assert len(statistics) == 4
    assert int(statistics[0]) == 15 + OVERHEAD
    assert int(statistics[3]) == len("Last") + OVERHEAD + len("U" + "system\n短く" + "E\n") + 4


def test_chat_forgets_the_oldest_turns(checkpoint: Path) -> None:
    lines = ["a" * 200, "b" * 200, "c" * 600, "d" * 60]
    code, stdout, stderr = run("chat", "--model", checkpoint, "--max-tokens", 2, "--temp", 0, stdin="\n".join(lines))
    assert (code, stdout != b"") == (0, True)
    first, second, refusal, forgets, last = stderr.splitlines()
    assert first.startswith(f"{200 + OVERHEAD} tokens in, 2 out")
    assert refusal == "Your message has 619 tokens, but the context holds only 512: shorten the message."
    assert forgets == "The context of 512 tokens is full, so the oldest 1 of 2 turns were forgotten."
    assert int(second.split()[0]) > 400 > int(last.split()[0])


@pytest.fixture
def terminal(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[Terminal]:
    terminal = in_terminal(*request.param, "--model", checkpoint, "--seed", 2)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("terminal", [["main"]], indirect=True)
def test_ctrl_c_while_loading(terminal: Terminal) -> None:
    terminal.wait_for_next(r"prompt: Tell me a short story\.\nloading ")
    terminal.send("\x03")
    assert terminal.exit_code() == 130
    assert terminal.screen.endswith("\ninterrupted\n")
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize("terminal", [["main", "--max-tokens", 450]], indirect=True)
def test_ctrl_c_while_generating(terminal: Terminal) -> None:
    terminal.wait_for_next(r"loading [^\n]*\n.{10}")
    terminal.send("\x03")
    assert terminal.exit_code() == 130
    statistics = terminal.screen[terminal.screen.rindex("\n\n") + 1 :]
    assert re.search(r"generated +\d+ tokens +[0-9.]+ tok/s   interrupted\n", statistics)
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize("terminal", [["chat", "--max-tokens", 450]], indirect=True)
def test_chat_in_a_terminal(terminal: Terminal) -> None:
    terminal.wait_for_next("/help lists the commands, Ctrl-D ends.\n> ")
    terminal.send("Hellp\x7fo\n")  # Backspace
    terminal.wait_for_next("o\n.{10}")
    terminal.send("\x03")
    answer = terminal.wait_for_next("interrupted\n> ")
    statistics = re.search(r"\n(\d+) tokens in, (\d+) out", answer)
    assert statistics
    assert int(statistics[1]) == len("Hello") + OVERHEAD
    terminal.send("\x10\n")  # Ctrl-P, or Up: Hello again, with the earlier turns
    terminal.wait_for_next("Hello.*\n.{10}")
    terminal.send("\x03")
    again = re.search(r"\n(\d+) tokens in", terminal.wait_for_next("interrupted\n> "))
    assert again
    is_forgotten = "forgot the oldest 1 of 1 turns" in terminal.screen  # if Ctrl-C came late, the first answer is long
    assert is_forgotten or int(again[1]) > 2 * len("Hello") + 2 * OVERHEAD
    until(terminal.is_asleep)  # Python's readline does not see a signal in the moment after it shows the prompt
    terminal.send("\x03")
    assert terminal.exit_code() == 0
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize(
    ("text", "interrupted", "shown"),
    [("", True, "\n3 in\n"), ("a", True, "3 in\n"), ("a\n", True, "\n3 in\n"), ("a\n", False, "3 in\n")],
    ids=["before the first word", "in a line", "after a line", "not interrupted"],
)
def test_statistics_have_a_line_of_their_own(
    text: str, interrupted: bool, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal echoes ^C where the answer stops. `chat` ends the line only if the answer stops within a line."""
    reply = SimpleNamespace(text=text, interrupted=interrupted, line="3 in")
    session: Any = SimpleNamespace(
        context=9, max_tokens=4, encode_chat=lambda system, said: [1, 2, 3], reply=lambda prompt: reply
    )
    Chat(session, None, Messages("en"))._answer("x")
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize("terminal", [["chat", "--max-tokens", 5]], indirect=True)
def test_chat_ends_at_ctrl_d(terminal: Terminal) -> None:
    terminal.wait_for_next("Ctrl-D ends.\n> ")
    terminal.send("\x04")
    assert terminal.exit_code() == 0
    assert "Traceback" not in terminal.screen
