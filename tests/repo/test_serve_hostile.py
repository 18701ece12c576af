"""`tiny-llm serve` under attack: each hostile request is refused, and the next client gets its usual answer."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from test_serve import Running, running
from waiting import until

MODEL = "story-draft"
COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
PLAIN = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 2, "temperature": 0}
MB = 1 << 20  # the default of --max-body
LONGEST = 2000  # bytes of a refusal: it shows a long value in short
JSON = b"Content-Type: application/json\r\n"
CLOSE = b"Connection: close\r\n"
HOST = b"Host: 127.0.0.1\r\n"
HEALTH = b"GET /health HTTP/1.1\r\n" + HOST + CLOSE
HEAD = b"POST /v1/completions HTTP/1.1\r\n" + HOST + CLOSE + JSON
BODY = json.dumps(PLAIN).encode()
CHUNKED, LENGTH = b"Transfer-Encoding: chunked\r\n", b"Content-Length: %d\r\n" % len(BODY)
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
METRICS = b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n"  # what a request hides in its body


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("--model", MODEL) as found:
        yield found
        assert "Traceback" not in found.end()


@pytest.fixture(scope="module")
def plain(server: Running) -> bytes:
    """Return the choices of a request without any attack."""
    return choices(server)


@pytest.fixture(autouse=True)
def _served_as_before(server: Running, plain: bytes) -> Iterator[None]:
    yield
    assert choices(server) == plain
    until(lambda: not server.metric('pages{status="used"}'))


def choices(server: Running) -> bytes:
    status, _, answer = server.ask("POST", COMPLETE, BODY, **{"Content-Type": "application/json"})
    assert status == 200, answer
    return json.dumps(json.loads(answer)["choices"]).encode()


def connect(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=600)


def answer_to(server: Running, sent: bytes) -> bytes:
    """Return all bytes until the server closes the connection, which it does at the latest when the client's input
    ends."""
    found = b""
    with connect(server) as connection, suppress(OSError):
        with suppress(OSError):  # it may have been closed already
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        while more := connection.recv(1 << 16):
            found += more
    return found


def statuses(answer: bytes) -> list[int]:
    return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def named(cases: Mapping[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("attack", list(cases.values()), ids=list(cases))


def length(text: bytes) -> bytes:
    return HEAD + b"Content-Length: " + text + b"\r\n\r\n" + BODY


def chunked(text: bytes) -> bytes:
    return HEAD + CHUNKED + b"\r\n" + text


BAD_HEADS = {
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "only line ends": b"\r\n" * 5000,
    "no version": b"GET /health\r\n\r\n",
    "version of two digits": b"GET /health HTTP/1.10\r\n" + HOST + b"\r\n",
    "two spaces": b"GET  /health HTTP/1.1\r\n" + HOST + b"\r\n",
    "space in the target": b"GET /he alth HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in the target": b"GET /health\0 HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in the method": b"G\0T /health HTTP/1.1\r\n" + HOST + b"\r\n",
    "endless method": b"G" * 100_000,
    "endless target": b"GET /" + b"a" * MB,
    "endless header": HEALTH + b"X: " + b"a" * MB,
    "endless headers": HEALTH + b"X: a\r\n" * 200_000,
    "header without a colon": HEALTH + b"nonsense\r\n\r\n",
    "header without a name": HEALTH + b": 1\r\n\r\n",
    "space before the colon": HEALTH + b"X : 1\r\n\r\n",
    "NUL in a header": HEALTH + b"X: a\0b\r\n\r\n",
    "carriage return in a header": HEALTH + b"X: a\rY: b\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": HEALTH + HOST + b"\r\n",
}
BAD_LENGTHS = {
    **{f"length {each.decode()}": length(each) for each in (b"-1", b"+5", b"0x10", b"1e3", b"1_0", b"", b"2, 3")},
    **{f"length of {count} digits": length(b"9" * count) for count in (30, 5000, 100_000)},
    "length in Arabic digits": length("١٢".encode()),
    "two lengths": HEAD + LENGTH + b"Content-Length: 2\r\n\r\n" + BODY,
    "too short": length(b"10"),
    "too long": length(b"1000"),
    "length and chunks": HEAD + LENGTH + CHUNKED + b"\r\n0\r\n\r\n" + METRICS,
    "gzip": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "chunked twice": HEAD + CHUNKED + CHUNKED + b"\r\n" + CHUNKS,
    "almost chunked": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS,
    "identity": HEAD + LENGTH + b"Transfer-Encoding: identity\r\n\r\n" + BODY,
    **{f"chunk {each[:8].decode()}": chunked(each + b"\r\n{}\r\n0\r\n\r\n") for each in (b"zz", b"-2", b"0x2", b"")},
    "chunk of 30 digits": chunked(b"F" * 30 + b"\r\n{}"),
    "chunk of 16 digits": chunked(b"F" * 16 + b"\r\n{}"),
    "endless chunk size": chunked(b"0" * 100_000),
    "endless chunk extension": chunked(b"2;" + b"a" * MB),
    "endless trailer": chunked(CHUNKS[:-2] + b"X: " + b"a" * MB),
    "no line end after a chunk": chunked(b"2\r\n{}XX0\r\n\r\n"),
    "chunks of one byte": chunked(b"1\r\n \r\n" * 20_000 + b"0\r\n\r\n"),
    "a chunk of 2 MB": chunked(b"%x\r\n" % (2 * MB) + b" " * (2 * MB) + b"\r\n0\r\n\r\n"),
    **{
        f"a body of {size} bytes": HEAD + b"Content-Length: %d\r\n\r\n" % size + b" " * size
        for size in (MB + 1, 20 * MB)
    },
}


@named(BAD_HEADS | BAD_LENGTHS)
def test_protocol(server: Running, attack: bytes) -> None:
    """The attack gets one refusal, or a closed connection."""
    answer = answer_to(server, attack)
    assert answer == b"" or all(400 <= status < 500 for status in statuses(answer) or [0]), answer[:LONGEST]


@named(
    {
        "after a body": HEAD + LENGTH + b"\r\n" + BODY + METRICS,
        "after chunks": HEAD + CHUNKED + b"\r\n" + CHUNKS + METRICS,
        "in a chunk extension": chunked(b"%x;\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)) + METRICS,
        "in the body of a GET": HEALTH + b"Content-Length: %d\r\n\r\n" % len(METRICS) + METRICS,
    }
)
def test_hidden_requests(server: Running, attack: bytes) -> None:
    """A request after the last one of a connection, or within another request's body, gets no answer."""
    answer = answer_to(server, attack)
    assert len(statuses(answer)) <= 1
    assert b"tiny_llm_" not in answer


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil"),
        *("localhost:80@evil.example", "10.0.0.1", "169.254.169.254", "[::2]", "[::1", "local host", "ローカル"),
        "a" * 9000,
    ],
)
@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/live", COMPLETE])
def test_foreign_hosts(server: Running, host: str, path: str) -> None:
    """The name of a foreign page may point to this machine (DNS rebinding): the page must get no answer."""
    lines = f"{'POST' if path == COMPLETE else 'GET'} {path} HTTP/1.1\r\nHost: {host}\r\n".encode()
    body = LENGTH + b"\r\n" + BODY if path == COMPLETE else b"\r\n"
    with connect(server) as connection:
        connection.sendall(lines + CLOSE + JSON + body)
        status = connection.recv(12, socket.MSG_WAITALL)
    assert re.fullmatch(rb"HTTP/1.1 4\d\d", status), status


@pytest.mark.parametrize(
    "path",
    [
        *("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//127.0.0.1/health", "/%00", "/%ff", "/%", "/\\..\\x"),
        *("/v1/models/..%2f..%2fx", "/v1/models/%00", "/v1/models/%ED%A0%80", "/v1/models/x%0d%0aSet-Cookie:%20a=b"),
        *("/v1/models/<script>", "/v1/models/{7*7}", "/v1/models/%s%n", "/Health", "/docs", "/.git/config"),
        *("/" * 30_000, *("/v1/models/" + long for long in ("a" * 60_000, "../" * 5000, "%F0%9F%98%80" * 4000))),
    ],
    ids=lambda path: path[:30],
)
def test_paths(server: Running, path: str) -> None:
    answer = answer_to(server, f"GET {path} HTTP/1.1\r\n".encode() + HOST + CLOSE + b"\r\n")
    assert statuses(answer) == [400 if len(path) > 16_000 else 404], answer[:LONGEST]  # too long for a line
    assert b"Set-Cookie" not in answer.partition(b"\r\n\r\n")[0]
    assert len(answer) < LONGEST


def completion(**change: Any) -> Callable[[], tuple[str, bytes]]:
    """Return a function that makes the request when the test runs, because some requests are long."""
    return lambda: (COMPLETE, json.dumps(PLAIN | change).encode())


def inserted(text: str) -> Callable[[], tuple[str, bytes]]:
    return lambda: (COMPLETE, BODY[:-1] + b", " + text.encode() + b"}")


def chat(*messages: Any, **more: Any) -> Callable[[], tuple[str, bytes]]:
    asked = {"model": MODEL, "max_tokens": 2, "temperature": 0, "messages": messages}
    return lambda: (CHAT, json.dumps(asked | more).encode())


def says(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content} | more


TOO_LONG = {
    "a model's name": completion(model="m" * 1_000_000),
    "a parameter's name": completion(**{"p" * 1_000_000: 1}),
    "70,000 parameters": completion(**{f"p{i}": 1 for i in range(70_000)}),
    "a number": inserted('"seed": ' + "9" * 1_000_000),
    "an exponent": inserted('"temperature": 1e' + "9" * 1_000_000),
    "100,000 levels": inserted('"user": ' + "[" * 100_000 + "]" * 100_000),
    "5 stop strings": completion(stop=list("abcde")),
    "200,000 stop strings": completion(stop=["a"] * 200_000),
    "a stop string of 10,000 letters": completion(stop="x" * 10_000),
    "a stop string of 1,000,000 letters": completion(stop="x" * 1_000_000),
    "4 stop strings of 250,000 letters": completion(stop=["x" * 250_000] * 4),
    "a stream's stop string": completion(stop="x" * 1_000_000, stream=True),
    "1,000,000 letters": completion(prompt="a" * 1_000_000),
    "900,000 spaces": completion(prompt=" " * 900_000),
    "85,000 control tokens": completion(prompt="<|im_end|>" * 85_000),
    "85,000 control tokens in a chat": chat(says("<|im_end|>" * 85_000)),
    "80,000 ligatures": completion(prompt="\ufdfa" * 80_000),
    "300,000 tokens": completion(prompt=[0] * 300_000),
    "150,000 prompts": completion(prompt=[[1]] * 150_000),
    "one token more than there is room for": completion(prompt=[300] * 1024, max_tokens=1),
    "a token of 4,000 digits": completion(prompt=[10**4000]),
    "60,000 biases": completion(logit_bias={f"{i:09}": 1 for i in range(60_000)}),
    "340,000 messages": chat(*[1] * 340_000),
    "50,000 messages without a content": chat(*[{"role": "user"}] * 50_000),
    "20,000 good messages": chat(*[says("a")] * 20_000),
    "a content of 340,000 numbers": chat(says([1] * 340_000)),
    "a content of 30,000 wrong parts": chat(says([{"type": "text", "text": 1}] * 30_000)),
    "a role": chat({"role": "u" * 1_000_000, "content": "a"}),
    "a message's 60,000 names": chat(says("a", **{f"n{i}": 1 for i in range(60_000)})),
}
HALF = "\ud83d"  # of a surrogate pair
WRONG = {
    **{f"half a character as {name}": completion(**{name: HALF}) for name in ("prompt", "model", "user", "stop")},
    "half a character as a name": completion(**{HALF: 1}),
    "half a character as a role": chat({"role": HALF, "content": "a"}),
    "half a character in a message": chat(says(HALF)),
    "half a character in a part": chat(says([{"type": "text", "text": HALF}])),
    "a name with NUL": completion(**{"a\0b": 1}),
    "a seed of 65 bits": completion(seed=2**64),
    "an image of this machine": chat(says([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}])),
    "audio": chat(says([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}])),
    "parts in parts": chat(says([[{"type": "text", "text": "a"}]])),
    "a chat template": chat(says("a"), chat_template="{{ ''.__class__ }}"),
    "a Python attribute": chat(says("a", __class__={"__mro__": 1})),
    "tools": chat(says("a"), tools=[{"type": "function", "function": {"name": "f"}}]),
    "more choices than may run and wait": completion(prompt=[[1]] * 65, n=16),
}


@named(TOO_LONG | WRONG)
def test_bodies(server: Running, attack: Callable[[], tuple[str, bytes]]) -> None:
    """They are refused with an error in the API's form, which is short however long the request was."""
    path, body = attack()
    head = f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n".encode() + HOST + JSON + CLOSE
    with connect(server) as connection:
        connection.sendall(head + b"\r\n" + body)
        answer = connection.makefile("rb").read()
    (status,) = statuses(answer)
    assert status in (400, 404, 413, 429), answer[:LONGEST]
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert error["type"] in ("invalid_request_error", "rate_limit_error")
    assert len(answer) < LONGEST


LEFT = {
    "completions": completion(max_tokens=900, ignore_eos=True),
    "streams": completion(max_tokens=900, ignore_eos=True, stream=True, n=4),
    "long texts": completion(prompt="<|im_end|>" * 85_000),
    "long messages": chat(says("<|im_end|>" * 85_000)),
}


@named(LEFT)
def test_who_asks_and_goes_away(server: Running, attack: Callable[[], tuple[str, bytes]]) -> None:
    """Nothing more is computed for such clients, and they hold no page: see also `_served_as_before`."""
    path, body = attack()
    head = f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n".encode() + HOST + JSON
    for _ in range(8):
        with connect(server) as connection:
            connection.sendall(head + b"\r\n" + body)
    until(lambda: not server.metric('requests_now{status="running"}'))
