"""The server's OpenAPI description, and bodies made from it: valid ones, and bodies with a client's mistakes."""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate
from request_bodies import Described, closed
from test_serve import Running, running

from tiny_llm_models import bundled
from tiny_llm_ref.serving.openapi import describe

MAX_BODY = 1_000_000  # more than the shortest list that is too long
MOST_CHOICES = 16 + 64  # that run or wait
JSON_TYPE = {"Content-Type": "application/json"}
PLAIN = {"model": "story", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
KINDS = {"/v1/completions": "Completion", "/v1/chat/completions": "Chat"}
PATHS = ["/health", "/metrics", "/v1", "/v1/models", "/v1/models/{model}", *KINDS]
SEED = int(os.environ.get("TINY_LLM_SEED") or secrets.randbits(32))
RULES = (  # what a schema does not say
    *("expected 1024 tokens at most", "prompt: expected token ids below 4096", "logit_bias: expected token ids below"),
    *("stream_options: expected stream to be true", "top_logprobs: expected logprobs to be true"),
    *("chat_template_kwargs: expected a checkpoint whose", "reasoning_effort: expected a checkpoint whose"),
    "reasoning_effort: expected what enable_thinking says",
    *(f"messages.{place}: content: expected a text" for place in range(100)),
    *("logprobs: expected none with echo", "best_of: expected n", "max_tokens: expected max_completion_tokens or"),
)


class Line:
    """A server, asked over one connection. description: the server's description of itself. answers: the same for a
    reader who accepts no other fields."""

    def __init__(self, server: Running):
        self.server = server
        self.connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=600)
        self.description = json.loads(self.ask("GET", "/openapi.json")[1])
        self.requests, self.answers = Described(self.description), Described(closed(self.description))
        self.text = self.complete()

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, bytes]:
        """Return the status and body of an answer. If the server has closed the idle connection, open another one."""
        for _ in range(2):
            try:
                self.connection.request(method, path, body, **options)
                self.response = self.connection.getresponse()
                return self.response.status, self.response.read()
            except (http.client.RemoteDisconnected, ConnectionError) as error:
                found = error
                self.connection.close()
        raise found

    def post(self, path: str, body: Any, headers: dict[str, str] = JSON_TYPE, **options: Any) -> tuple[int, bytes]:
        return self.ask("POST", path, body, headers=headers, **options)

    def complete(self) -> str:
        status, answer = self.post("/v1/completions", json.dumps(PLAIN))
        assert status == 200, answer
        return str(json.loads(answer)["choices"][0]["text"])

    def error(self, answer: bytes) -> dict[str, Any]:
        """Check that an answer is an error in the API's form. Return the error."""
        found = json.loads(answer)
        self.answers.check("Error", found)
        return dict(found["error"])

    def check_answer(self, path: str, answer: bytes) -> None:
        if self.response.headers.get_content_type() == "application/json":
            self.answers.check(f"{KINDS[path]}Answer", json.loads(answer))
            return
        *events, last, end = answer.decode().split("\n\n")
        assert (last, end) == ("data: [DONE]", "")
        for event in events:
            self.answers.check(f"{KINDS[path]}Chunk", json.loads(event.removeprefix("data: ")))


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    with running("--max-running", 16, "--max-body", MAX_BODY, "--pages", 200, "--layers", "kernels") as server:
        yield Line(server)
        assert "Traceback" not in server.end()


@pytest.fixture(autouse=True)
def _unharmed(line: Line) -> Iterator[None]:
    """Check, after the requests of a test, that nothing of them is left, and that other clients get their answers."""
    yield
    assert line.complete() == line.text
    for name in ('requests_now{status="running"}', 'requests_now{status="waiting"}', 'pages{status="used"}'):
        assert line.server.metric(name) == 0, name


def test_description(line: Line) -> None:
    found = line.description
    validate(found)
    assert list(found["paths"]) == PATHS
    for path, name in (
        ("/health", "Health"),
        ("/v1", "Index"),
        ("/v1/models", "ModelList"),
        ("/v1/models/story", "Model"),
    ):
        line.answers.check(name, json.loads(line.ask("GET", path)[1]))
    for name in ("ChatRequest", "CompletionRequest", "Message", "TextPart", "StreamOptions", "ResponseFormat"):
        assert found["components"]["schemas"][name]["additionalProperties"] is False
    assert "401" not in json.dumps(found)
    assert line.ask("POST", "/openapi.json")[0] == 405


def test_description_with_a_key(line: Line) -> None:
    found = describe(has_key=True)
    validate(found)  # type: ignore[arg-type]
    assert list(found["paths"]) == PATHS
    assert found["security"] == [{"key": []}]
    assert found["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert found["paths"]["/health"]["get"]["security"] == []
    assert all("401" in found["paths"][path]["post"]["responses"] for path in KINDS)
    chosen = json.loads((bundled("story") / "generation_config.json").read_text(encoding="utf-8"))
    defaults = {name: chosen[name] for name in ("temperature", "min_p")}
    assert describe(has_key=False, defaults=defaults) == line.description


def check_bodies(line: Line, count: int) -> None:
    """Send this many bodies. A body that is valid for the description is served, or breaks a rule that no schema can
    express; any other body is refused, and the error names the wrong parameter."""
    print(f"{count} bodies; TINY_LLM_SEED={SEED} makes the same ones")
    seen: Counter[int] = Counter()
    bodies = {path: line.requests.bodies(f"{kind}Request") for path, kind in KINDS.items()}

    @seed(SEED)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data(), path=st.sampled_from(list(KINDS)))
    def ask(data: st.DataObject, path: str) -> None:
        body = data.draw(bodies[path])
        status, answer = line.post(path, json.dumps(body))
        seen[status] += 1
        fits = line.requests.fits(f"{KINDS[path]}Request", body)
        if fits and status == 200:
            line.check_answer(path, answer)
        elif fits and status == 429:
            assert body["n"] * len(body.get("prompt", [""])) > MOST_CHOICES
        else:
            error = line.error(answer)
            assert status == (404 if error["code"] == "model_not_found" else 400), answer
            if fits:  # no schema says which models there are
                assert status == 404 or error["message"].startswith(RULES), answer
            else:
                assert error["param"] is not None or error["message"].startswith("body: ")

    ask()
    print(dict(seen))
    assert min(seen[200], seen[400]) > count / 20


def test_bodies(line: Line) -> None:
    check_bodies(line, 100)


@pytest.mark.nightly("two thousand requests take a minute")
def test_many_bodies(line: Line) -> None:
    check_bodies(line, 2000)


@pytest.mark.parametrize("token", ["4096", "999999999"])
def test_bias_of_tokens_that_are_not_there(line: Line, token: str) -> None:
    """The bias is refused before the engine sees it, because a step that fails ends the requests of all clients."""
    status, answer = line.post("/v1/completions", json.dumps(PLAIN | {"logit_bias": {token: 1}}))
    assert (status, line.error(answer)["param"]) == (400, "logit_bias")


@pytest.mark.parametrize(
    "least", [{"temperature": 5e-324}, {"temperature": 1e-40}, {"temperature": 1, "top_p": 5e-324}]
)
def test_least_numbers(line: Line, least: dict[str, float]) -> None:
    """Numbers that become 0 in float32 still mean the likeliest token."""
    status, answer = line.post("/v1/completions", json.dumps(PLAIN | least))
    assert (status, json.loads(answer)["choices"][0]["text"]) == (200, line.text)


@pytest.mark.parametrize("top_k", [2**63 - 1, 2**63, 10**30])
def test_a_large_top_k(line: Line, top_k: int) -> None:
    """It keeps all tokens, as 0 does."""
    drawn = PLAIN | {"temperature": 1, "min_p": 0, "seed": 7}
    answers = [line.post("/v1/completions", json.dumps(drawn | {"top_k": each})) for each in (0, top_k)]
    assert [status for status, _ in answers] == [200, 200]
    before, after = (json.loads(answer)["choices"][0]["text"] for _, answer in answers)
    assert before == after


def raw(*inner: str) -> st.SearchStrategy[bytes]:
    """Return bodies that are valid except for one of these texts."""
    return st.sampled_from([json.dumps(PLAIN)[:-1] + "," + each + "}" for each in inner]).map(str.encode)


TEXT = json.dumps(PLAIN).encode()
NOT_JSON = (
    st.integers(0, len(TEXT) - 1).map(lambda end: TEXT[:end])
    | st.integers(1, len(TEXT) - 1).map(lambda place: TEXT[:place] + b"\xff" + TEXT[place:])
    | st.binary(max_size=60)
    | st.sampled_from([TEXT + TEXT, TEXT + b"x", TEXT.replace(b'"', b"'"), TEXT[:-1] + b",}", b"\xef\xbb\xbf", b"null"])
    | raw(
        *(f'"{name}": {number}' for name in ("top_p", "seed") for number in ("NaN", "Infinity", "-Infinity", "1e999"))
    )
    | raw(
        '"seed": ' + "9" * 5000,
        '"seed": 1.0',
        '"seed": 01',
        '"n": 1, "n": 1',
        '"model": "story"',
        '"n": 1, "\\u006e": 1',
    )
    | raw('"user": "\\ud83d"', '"stop": ["\\ude00"]', '"\\ud83d": 1', '"logit_bias": {"\\ud83d": 1}', '"user": "\n"')
    | st.sampled_from(["[", '{"a":']).flatmap(lambda each: raw(*(f'"user": {each * n}' for n in (500, 5000, 9000))))
    | raw(*('"user": ' + "[" * depth + "]" * depth for depth in (3, 500, 900, 5000, 20_000)))
)


@seed(SEED)
@settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(body=NOT_JSON, path=st.sampled_from(list(KINDS)))
def test_bodies_that_are_not_json(line: Line, body: bytes, path: str) -> None:
    status, answer = line.post(path, body)
    assert status == 400, answer
    assert line.error(answer)["type"] == "invalid_request_error"


@pytest.mark.parametrize("given_type", [None, "", "text/plain", "application/x-www-form-urlencoded", "json", "\xff"])
def test_other_content_types(line: Line, given_type: str | None) -> None:
    """They are refused, because a foreign web page could send them without asking first."""
    status, answer = line.post("/v1/completions", TEXT, {} if given_type is None else {"Content-Type": given_type})
    assert status == 415
    assert "application/json" in line.error(answer)["message"]
    for same in ("application/json; charset=utf-8", "Application/JSON"):
        assert line.post("/v1/completions", TEXT, {"Content-Type": same})[0] == 200


def test_long_and_chunked_bodies(line: Line) -> None:
    pieces = [TEXT[:10], TEXT[10:11], TEXT[11:]]
    status, answer = line.post("/v1/completions", iter(pieces), encode_chunked=True)
    assert (status, json.loads(answer)["choices"][0]["text"]) == (200, line.text)
    for body in (b" " * (MAX_BODY + 1), iter([b" " * 1000] * (MAX_BODY // 1000 + 1))):
        status, answer = line.post("/v1/completions", body)
        assert status == 413
        assert line.error(answer)["code"] == "request_too_large"
    status, answer = line.post("/v1/completions", json.dumps(PLAIN | {"prompt": [[1]] * 2000}))
    assert (status, line.error(answer)["code"]) == (429, "queue_full")


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
NOT_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a client that expects TLS
    b"\0" * 1000,
    b"hello\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /\xff\0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: " + b"x" * 100_000,  # and no end of it
    HEAD + b"Content-Length: -1\r\n\r\n",
    HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}\r\n",
]


def opened(line: Line, sent: bytes = b"") -> socket.socket:
    host, _, port = line.server.url.removeprefix("http://").rpartition(":")
    found = socket.create_connection((host, int(port)), timeout=600)
    found.sendall(sent)
    return found


@pytest.mark.parametrize("sent", NOT_HTTP)
def test_what_is_not_http(line: Line, sent: bytes) -> None:
    """It gets an error or nothing, and the server closes the connection."""
    answer = b""
    with opened(line) as connection, suppress(OSError):  # which a connection has that is closed already
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while more := connection.recv(4096):
            answer += more
    assert answer == b"" or re.match(rb"HTTP/1.1 4\d\d ", answer), answer


def test_requests_that_do_not_end(line: Line) -> None:
    cut = [
        HEAD[:9],
        HEAD,
        HEAD + b"Content-Length: 1000\r\n\r\n" + TEXT,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    ]
    connections = [opened(line, each) for each in cut for _ in range(5)]
    assert line.complete() == line.text
    for connection in connections:
        connection.close()
