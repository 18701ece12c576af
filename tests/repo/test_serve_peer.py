"""`tiny-llm serve` and mlx-lm's own server, two processes: the same requests on the same weights, the same answers.

The weights are the bundled model's in float32, which are the checkpoint's numbers exactly. A tie between two tokens,
which rounding would decide, is then practically impossible. mlx-lm's server (version 0.32) has four peculiarities,
which the comparison takes into account:

- It leaves out a space with which an output begins, and so does `shown` here with ours.
- It counts the token that ends a text as one of the output; we count what the client gets, as `max_tokens` does.
- It ends at a stop string only where the tokens are those that the string alone becomes. Elsewhere it leaves the string
  out and writes on. There, ours is compared with its text without stop strings, cut at the first.
- What the client is told last in a stream, the reason, is an event of its own, without text.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import openai
import pytest
from test_serve import running
from waiting import until

from tiny_llm_models import bundled

TELL = [{"role": "user", "content": "Tell me a short story."}]
KEY = "Mia had a red key. She hid the key in the old box. Then Mia went to the river."
TALK = [
    {"role": "system", "content": "You are kind."},
    {"role": "user", "content": f"{KEY} Where is the key?"},
    {"role": "assistant", "content": "In the old box."},
    {"role": "user", "content": "Who had the key?"},
]
LONG = " ".join(f"{name} went to the {place}. {KEY}" for name in ("Tom", "Ann", "Ben") for place in ("park", "lake"))
ONCE = "Once upon a time"

CASES: dict[str, dict[str, Any]] = {
    "two tokens": {"prompt": "Once upon", "max_tokens": 6},
    "a text": {"prompt": ONCE, "max_tokens": 24},
    "one token more": {"prompt": ONCE, "max_tokens": 1},
    "a long text": {"prompt": LONG, "max_tokens": 24},
    "not in English": {"prompt": "むかしむかし", "max_tokens": 24},
    "a text that is over": {"prompt": "They both laughed so loud that they forgot the dark.", "max_tokens": 12},
    "stop: some tokens": {"prompt": ONCE, "max_tokens": 30, "stop": " there was"},
    "stop: one of two": {"prompt": ONCE, "max_tokens": 30, "stop": ["dragon", "."]},
    "stop: never": {"prompt": ONCE, "max_tokens": 10, "stop": ["dragon"]},
    "a chat": {"messages": TELL, "max_tokens": 24},
    "a whole story": {"messages": TELL, "max_tokens": 200},
    "an answer": {"messages": TALK[1:2], "max_tokens": 20},
    "a talk": {"messages": TALK, "max_tokens": 20},
    "a chat, not in English": {"messages": [{"role": "user", "content": "短いお話をして。"}], "max_tokens": 20},
    "a chat with a stop": {"messages": TELL, "max_tokens": 40, "stop": [".", "!"]},
}


@dataclass(frozen=True)
class Answer:
    """A client's answer. reason: why the text ended. prompt, output: numbers of tokens."""

    text: str
    reason: str | None
    prompt: int
    output: int

    def shown(self) -> Answer:
        """Return the answer in mlx-lm's form: without a space at its beginning."""
        return Answer(self.text.removeprefix(" "), self.reason, self.prompt, self.output)


@dataclass(frozen=True)
class Server:
    """A server, asked by OpenAI's client for the model of this name."""

    client: openai.OpenAI
    model: str

    def ask(self, asked: dict[str, Any], stream: bool) -> Answer:
        api: Any = self.client.chat.completions if "messages" in asked else self.client.completions
        asked = asked | {"model": self.model, "temperature": 0}
        if not stream:
            found = api.create(**asked)
            return _answer([found], found.usage)
        parts = list(api.create(**asked, stream=True, stream_options={"include_usage": True}))
        assert [part.usage is not None for part in parts] == [False] * (len(parts) - 1) + [True]
        return _answer(parts[:-1], parts[-1].usage)


def _answer(parts: list[Any], usage: Any) -> Answer:
    choices = [choice for part in parts for choice in part.choices]
    (reason,) = {choice.finish_reason for choice in choices} - {None}
    return Answer("".join(map(_text, choices)), reason, usage.prompt_tokens, usage.completion_tokens)


def _text(choice: Any) -> str:
    if hasattr(choice, "delta"):
        return choice.delta.content or ""
    return choice.message.content or "" if hasattr(choice, "message") else choice.text


device = pytest.fixture(lambda: None)  # the servers choose their own


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the bundled model in float32 to a folder that both servers can load."""
    source, folder = bundled("story"), tmp_path_factory.mktemp("weights") / "story-float32"
    folder.mkdir()
    for file in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / file, folder)
    found: Any = mx.load(str(source / "model.safetensors"))
    wide = {name: array.astype(mx.float32) for name, array in found.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), wide, {"format": "mlx"})
    return folder


@contextmanager
def peer(weights: Path, log: Path) -> Iterator[str]:
    """Start mlx-lm's server. Yield its address, without /v1."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(weights), "--port", str(port)]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(OSError):
            direct(f"{url}/health", timeout=5).close()
            return True
        return False

    try:
        until(answers, told=log.read_text)
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def both(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Yield our server and mlx-lm's."""
    log = tmp_path_factory.mktemp("peer") / "log.txt"
    options = ("--impl", "ref", "--model", weights, "--dtype", "float32")
    with peer(weights, log) as url, running(*options) as ours:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)
        yield Server(ours.client(), weights.name), Server(client, "default_model")


def assert_same(ours: Answer, peer: Answer, has_stop: bool) -> None:
    """Check that text, reason and numbers of tokens are equal, except for the token that ends a text."""
    ended = peer.reason == "stop" and not has_stop
    expected = Answer(peer.text, peer.reason, peer.prompt, peer.output - ended)
    assert ours.shown() == expected.shown()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", CASES)
def test_the_same_answer(both: tuple[Server, Server], name: str, stream: bool) -> None:
    ours, peer = (server.ask(CASES[name], stream) for server in both)
    assert_same(ours, peer, "stop" in CASES[name])


@pytest.mark.parametrize(
    ("words", "cut"), [((6, 7), 0), ((3, 7), 0), ((1, 5), 3)], ids=["word", "words", "part of a word"]
)
def test_a_stop_string_that_ends_or_begins_within_a_token(
    both: tuple[Server, Server], words: tuple[int, int], cut: int
) -> None:
    """The stop string consists of these words of the text, without the space before them and without the last `cut`
    characters."""
    ours, peer = both
    asked = {"prompt": ONCE, "max_tokens": 30}
    whole = peer.ask(asked, stream=False)
    stop = " ".join(whole.text.split()[slice(*words)])
    stop = stop[: len(stop) - cut]
    assert stop in whole.text
    stopped = ours.ask(asked | {"stop": stop}, stream=False)
    assert (stopped.text, stopped.reason) == (whole.text.partition(stop)[0], "stop")


def test_many_at_once(both: tuple[Server, Server]) -> None:
    """Both servers compute them together, and each request gets the result that it gets alone."""
    cases = list(CASES.values())
    with ThreadPoolExecutor(6) as pool:
        ours, peer = (list(pool.map(server.ask, cases, [True] * len(cases))) for server in both)
    for asked, one, other in zip(cases, ours, peer, strict=True):
        assert_same(one, other, "stop" in asked)
