"""`tiny-llm serve` with requests from the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from test_serve import Running, running
from waiting import until

from tiny_llm_course.serve.serve_command import _listener

KEY = "a key"
JSON_TYPE = ["-H", "Content-Type: application/json"]
BEARER = ["-H", f"Authorization: Bearer {KEY}"]
MESSAGES = [{"role": "user", "content": "Tell me a short story."}]
CALLS: dict[str, dict[str, Any]] = {
    "completions": {"model": "story", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0},
    "chat/completions": {"model": "story", "messages": MESSAGES, "max_tokens": 24, "temperature": 0},
}


def command(server: Running, path: str, *options: str) -> list[str]:
    program = shutil.which("curl")
    assert program, "this test runs curl, which is not there: apt-get install curl"
    return [program, "-q", "--noproxy", "*", "-sS", f"{server.url}{path}", *options]


def curl(server: Running, path: str, *options: str) -> str:
    run = subprocess.run(command(server, path, *options), capture_output=True, text=True, timeout=600)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def ask(server: Running, path: str, body: Any, *options: str) -> str:
    text = body if isinstance(body, str) else json.dumps(body)
    return curl(server, f"/v1/{path}", *JSON_TYPE, *BEARER, "-d", text, *options)


def text_of(choice: dict[str, Any]) -> str:
    return str(choice.get("text") or choice.get("message", choice.get("delta", {})).get("content") or "")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("--api-key", KEY) as found:
        yield found
        assert "Traceback" not in found.end()


@pytest.mark.parametrize("path", CALLS)
def test_a_stream(server: Running, path: str) -> None:
    whole = json.loads(ask(server, path, CALLS[path]))["choices"][0]
    lines = [line for line in ask(server, path, CALLS[path] | {"stream": True}, "-N").splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines.pop() == "data: [DONE]"
    choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]
    assert "".join(map(text_of, choices)) == text_of(whole) != ""
    assert [choice["finish_reason"] for choice in choices][-2:] == [None, whole["finish_reason"]]


def test_what_is_refused(server: Running) -> None:
    """The client gets the reason as JSON."""
    for body, message in (("{", "body: expected JSON"), ({"model": "story"}, "prompt: "), ([], "body: ")):
        error = json.loads(ask(server, "completions", body))["error"]
        assert error["message"].startswith(message)
        assert error["type"] == "invalid_request_error"
    form = curl(server, "/v1/completions", *BEARER, "-d", json.dumps(CALLS["completions"]))
    assert json.loads(form)["error"]["message"] == "Content-Type: expected application/json"
    stranger = curl(server, "/v1/completions", *JSON_TYPE, "-d", json.dumps(CALLS["completions"]))
    assert json.loads(stranger)["error"]["code"] == "invalid_api_key"
    assert json.loads(curl(server, "/openapi.json"))["security"] == [{"key": []}]  # strangers may read how to ask
    status = ["--fail-with-body", "-o", os.devnull, "-w", "%{http_code}"]
    run = subprocess.run(command(server, "/v1/models", *status), capture_output=True, text=True, timeout=600)
    assert (run.returncode, run.stdout) == (22, "401")


def test_a_stream_that_is_cut(server: Running) -> None:
    """Nothing of it is left. The server is paused for a while, so that the client's time limit is reached first."""

    def metric(name: str) -> float:
        lines = curl(server, "/metrics", *BEARER).splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"tiny_llm_{name} ")), 0.0)

    complete = metric('requests_total{finish_reason="length"}')
    body = CALLS["completions"] | {"max_tokens": 900, "ignore_eos": True, "stream": True, "n": 8}
    asked = [*JSON_TYPE, *BEARER, "-N", "--max-time", "2", "-d", json.dumps(body)]
    with subprocess.Popen(
        command(server, "/v1/completions", *asked), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        server.process.send_signal(signal.SIGSTOP)
        try:
            assert process.wait(timeout=600) == 28  # the operation timed out
        finally:
            server.process.send_signal(signal.SIGCONT)
    names = ('requests_now{status="running"}', 'requests_now{status="waiting"}', 'pages{status="used"}')
    until(lambda: not any(map(metric, names)), told=lambda: {name: metric(name) for name in names})
    assert metric('requests_total{finish_reason="length"}') == complete


def test_events_are_sent_at_once() -> None:
    """The server does not wait until the client confirms the previous event, which takes the client 40 ms."""
    with _listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
