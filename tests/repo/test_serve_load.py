"""`tiny-llm serve` with many clients at once, clients that go away or do not read, and signals to end."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx
import pytest
from test_serve import Running, running
from waiting import until

from tiny_llm_course.ui.language import Messages
from tiny_llm_ref import models
from tiny_llm_ref.generate import generate, stream_text
from tiny_llm_ref.kv_cache import KVCache
from tiny_llm_ref.quantize import quantize_model
from tiny_llm_ref.serving.distributions import sampler_of
from tiny_llm_ref.serving.sampling_params import SamplingParams

FAST = ("--bits", 4, "--layers", "kernels", "--threads", 1)  # in float32, in a tenth of the plain layers' time
CLIENTS, REQUESTS, ROUNDS = 64, 170, 3  # at the same time, in a round
PAGES = 32  # enough for a third of the requests that may run at the same time
MAX_RUNNING, MAX_WAITING = 16, 112  # twice the clients: the server may not know yet who has gone
CROWD = {"prompt": [[300 + i] for i in range(8)], "n": 16}  # the largest number of requests that may run and wait
CROWDS = 8  # in a round
JSON = {"Content-Type": "application/json"}
MARGIN = 6 << 10  # KiB
PATIENCE = 120  # seconds after which a missing event fails a test
FREE, KEPT = -2, -1  # pages, as /live shows them


@dataclass(frozen=True)
class Wish:
    """A request, and what it gets alone: the text, and why the text ends."""

    body: dict[str, Any]
    alone: tuple[str, str]


@pytest.fixture(scope="module")
def wishes() -> list[Wish]:
    """Compute the answers with week 2's loop, without kernels, pages and other requests. Every second text is drawn."""
    model, tokenizer = models.load("story", mx.float32)
    quantize_model(model, bits=4)
    random, longest, found = Random(1), 24, []
    for seed in range(8):
        if seed % 2 == 0:  # the next prompt may begin as this one does
            tokens = [random.randrange(300, model.config.vocab_size) for _ in range(160)]
        prompt = tokens[: random.randint(1, len(tokens))]
        drawn = {"temperature": 0.8, "min_p": 0, "seed": seed} if seed % 2 else {"temperature": 0}
        cache, sampler = KVCache(len(model.layers)), sampler_of(SamplingParams(**drawn))
        output = list(generate(model, prompt, sampler, longest, model.config.eos_token_ids, cache))
        for count in (*random.sample(range(1, longest), 2), longest):
            text = "".join(stream_text(output[:count], tokenizer))
            asked = {"model": "story", "prompt": prompt, "max_tokens": count, **drawn}
            found.append(Wish(asked, (text, "length" if len(output) >= count else "stop")))
    return found


def stream_of(count: int, **more: int) -> dict[str, Any]:
    asked = {"model": "story", "prompt": "Once upon a time", "temperature": 0, "ignore_eos": True, "stream": True}
    return asked | {"max_tokens": count} | more


def address(server: Running) -> tuple[str, int]:
    return "127.0.0.1", int(server.url.rpartition(":")[2])


def send(server: Running, body: dict[str, Any] | None, path: str = "/v1/completions") -> http.client.HTTPConnection:
    """Send a request. Return the connection on which the answer will come."""
    connection = http.client.HTTPConnection(*address(server), timeout=PATIENCE)
    sent = (None, {}) if body is None else (json.dumps(body), JSON)
    connection.request("GET" if body is None else "POST", path, *sent)
    return connection


def events(connection: http.client.HTTPConnection) -> Iterator[str]:
    """Return the events of a stream, once the stream has begun."""
    response = connection.getresponse()
    return (line.decode().removeprefix("data: ").strip() for line in response if line.strip())


def is_whole(found: list[str]) -> bool:
    """Tell whether a stream was served to its end. If not, its last event is an error in the API's form."""
    if found[-1] == "[DONE]":
        assert json.loads(found[-2])["choices"][0]["finish_reason"] in ("stop", "length")
        return True
    error = json.loads(found[-1])["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("server_error", "stopping")
    return False


def answer(connection: http.client.HTTPConnection, is_stream: bool) -> tuple[str, str]:
    """Return a whole answer: the text, and why the text ends."""
    if is_stream:
        found = list(events(connection))
        assert is_whole(found)
        parts = [json.loads(event)["choices"][0] for event in found[:-1]]
    else:
        parts = json.loads(connection.getresponse().read())["choices"]
    return "".join(part["text"] for part in parts), parts[-1]["finish_reason"]


def visit(server: Running, wish: Wish, random: Random) -> None:
    """Get the answer that the request gets alone, or go away before it comes."""
    is_stream, leaves = random.random() < 0.6, random.random() < 0.2
    with closing(send(server, wish.body | {"stream": is_stream})) as connection:
        if not leaves:
            assert answer(connection, is_stream) == wish.alone
        elif is_stream:
            list(islice(events(connection), random.randrange(6)))
        else:
            for _ in range(random.randrange(16)):
                server.ask("GET", "/health")  # meanwhile the server goes on


def check(server: Running, wish: Wish) -> None:
    """A client that stays gets the answer that it gets alone."""
    with closing(send(server, wish.body)) as connection:
        assert answer(connection, False) == wish.alone


def is_idle(server: Running) -> bool:
    """Tell whether no request runs or waits, and each page is free or cached, as both /live and /metrics must say."""
    with closing(send(server, None, "/live")) as connection:
        shown = json.loads(next(events(connection)))
    free, kept = (shown["pages"]["owners"].count(kind) for kind in (FREE, KEPT))
    names = [f'requests_now{{status="{name}"}}' for name in ("running", "waiting")]
    names += [f'pages{{status="{name}"}}' for name in ("used", "cached", "free")]
    told = [server.metric(name) for name in names]
    return shown["running"] == shown["waiting"] == [] and free + kept == PAGES and told == [0, 0, 0, kept, free]


def takes_a_crowd(server: Running) -> bool:
    """Tell whether the server takes the largest number of requests at once, so that it counts no other request."""
    body = CROWD | {"model": "story", "max_tokens": 1}
    status, _, found = server.ask("POST", "/v1/completions", json.dumps(body).encode(), **JSON)
    assert status in (200, 429), found
    return status == 200


def resident(process: subprocess.Popen[str]) -> int:
    """Return the memory of a process, in KiB."""
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        return int(next(line for line in status.read_text().splitlines() if line.startswith("VmRSS")).split()[1])
    return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(process.pid)]))


def ends_well(server: Running) -> None:
    """Check that the process ends by itself after a signal."""
    assert server.process.wait(timeout=PATIENCE) == 0
    assert "Traceback" not in server.end()


def test_load(wishes: list[Wish], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many requests gets the result that it gets alone. Then nothing is held, and memory has not grown.

    After the first round 2400 requests come. Then a server that forgets them has 0 to 3 MiB more; a server that keeps
    each `Request` has 14 MiB more.
    """
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")  # in glibc, an arena for each thread keeps what others could use
    limits = ("--max-running", MAX_RUNNING, "--max-waiting", MAX_WAITING)
    sizes = []
    with running(*FAST, *limits, "--cache", "kernel-prefix", "--pages", PAGES) as server:
        for number in range(ROUNDS):
            random = Random(number)
            with ThreadPoolExecutor(CLIENTS) as pool:
                each = [(random.choice(wishes), Random(random.random())) for _ in range(REQUESTS)]
                list(pool.map(lambda one: visit(server, *one), each))
            until(lambda: is_idle(server), PATIENCE)
            until(lambda: takes_a_crowd(server), PATIENCE)
            assert all(takes_a_crowd(server) for _ in range(1, CROWDS))
            sizes.append(resident(server.process))
        assert server.metric('requests_total{finish_reason="abort"}') > 0
        assert server.metric("preemptions_total") > 0
        assert server.metric('tokens_total{kind="cached"}') > 0
        assert max(sizes) < sizes[0] + MARGIN
        assert "Traceback" not in server.end()


def test_who_is_refused_may_come_again(wishes: list[Wish]) -> None:
    with running(*FAST, "--max-running", 1, "--max-waiting", 1) as server, ExitStack() as stack:
        refused = []
        for wish, connection in [(wish, stack.enter_context(closing(send(server, wish.body)))) for wish in wishes]:
            response = connection.getresponse()
            body = json.loads(response.read())
            if response.status == 200:
                assert (body["choices"][0]["text"], body["choices"][0]["finish_reason"]) == wish.alone
            else:
                assert response.status == 429
                assert 1 <= int(response.headers["retry-after"]) <= 60
                assert (body["error"]["type"], body["error"]["code"]) == ("rate_limit_error", "queue_full")
                refused.append(wish)
        assert 0 < len(refused) < len(wishes)
        for wish in refused:
            check(server, wish)


@contextmanager
def begun(server: Running, bodies: list[dict[str, Any]]) -> Iterator[list[Iterator[str]]]:
    """Yield streams, each of which has sent an event."""
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(send(server, body))) for body in bodies]
        streams = [events(connection) for connection in connections]
        for stream in streams:
            next(stream)
        yield streams


@contextmanager
def unread(server: Running) -> Iterator[socket.socket]:
    """Yield a connection for which the server has computed more than the connection takes while the client reads
    nothing."""
    body = json.dumps(stream_of(900, n=4)).encode()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)  # or loopback's large segments make large buffers
        slow.connect(address(server))
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        until(lambda: server.metric('tokens_total{kind="output"}') > 2000, PATIENCE)
        yield slow


def got_all(slow: socket.socket) -> bool:
    """Tell whether a response was sent to its end."""
    found = b""
    slow.settimeout(PATIENCE)
    with suppress(OSError):
        while part := slow.recv(1 << 16):
            found += part
    return found.endswith(b"\r\n0\r\n\r\n")


def test_the_end_of_a_busy_server() -> None:
    """Each request that is being served is served to its end, or gets an error."""
    with (
        running(*FAST, "--max-running", 20) as server,
        begun(server, [stream_of(20 + 10 * i) for i in range(20)]) as streams,
    ):
        server.process.send_signal(signal.SIGTERM)
        assert True in [is_whole(list(stream)) for stream in streams]
        ends_well(server)


def listens(server: Running) -> bool:
    with suppress(OSError), socket.create_connection(address(server)):
        return True
    return False


def is_served_on(stream: Iterator[str]) -> bool:
    with suppress(OSError, http.client.HTTPException):
        return "[DONE]" in list(stream)
    return False


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal(second: signal.Signals) -> None:
    """The server waits neither for the requests that it serves, nor for clients that do not read."""
    with (
        running(*FAST, "--max-running", 24) as server,
        unread(server) as slow,
        begun(server, [stream_of(900) for _ in range(20)]) as streams,
    ):
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not listens(server), PATIENCE)
        server.process.send_signal(second)
        ends_well(server)
        assert False in [is_served_on(stream) for stream in streams]
        assert not got_all(slow)


def test_a_client_that_does_not_read_delays_no_other(wishes: list[Wish]) -> None:
    with running(*FAST) as server, unread(server) as slow:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda wish: check(server, wish), wishes))
        server.process.send_signal(signal.SIGTERM)
        ends_well(server)
        assert Messages("en")("serve_unread", count=1) in "".join(server.said)
        assert not got_all(slow)
