"""The lines that `tiny-llm batch` reads: the lines that it refuses, and the requests that it makes of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from batches import call, write

from tiny_llm_course.serve.batch_input import BatchLine, read_requests
from tiny_llm_course.ui.errors import CommandError
from tiny_llm_course.ui.language import LANGUAGES, speaking

device = pytest.fixture(lambda: None)  # the commands choose their own


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
    '{"prompt": "x", "stop": ["a", ""]}': "stop: expected a text, or a list of at most 4 texts, of 1 to 256 ",
    '{"prompt": "x", "stop": ["a", "b", "c", "d", "e"]}': "stop: expected a text, or a list of at most 4 texts, of 1 ",
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
    """As in the server, null and empty values of unknown names ask for nothing."""
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
    """Temperatures that become 0 in float32 still mean the likeliest token."""
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
    """Accept a byte-order mark, line ends of Windows, and a missing last line end. Other line separators are text."""
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "a\xe2\x80\xa8b"}\r\n{"prompt": "c", "stop": "d"}')
    first, second = read_requests(file)
    assert (first.prompt, second.prompt, second.params["stop"], second.id) == ("a\u2028b", "c", ["d"], "line-2")
    file.write_bytes(b"")
    with pytest.raises(CommandError, match="expected a request on each line, got an empty file"):
        read_requests(file)
