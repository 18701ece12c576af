"""The connections of `tiny-llm serve`: which give way, are refused, or are too slow, and the lines of the log."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

import pytest

from tiny_llm_course.serve import connections
from tiny_llm_course.serve.connections import MOST, OTHER_FILES, PAUSE, Rarely, Runner, most_connections

LONG = b"x" * (16 << 20)  # more than the server can send while the client does not read
HEAD = b"POST /%b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
MOST_HERE = 5
PATIENCE = 60  # seconds
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class App:
    """An application that answers ok: for the path /wait once `go` is set, and for the path /long after sending
    LONG."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = asyncio.Semaphore(0)  # how many clients have asked for /wait

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        if scope["path"] == "/wait":
            self.begun.release()
            await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/long":
            await send({"type": "http.response.body", "body": LONG, "more_body": True})
        await send({"type": "http.response.body", "body": b"ok"})


class Served:
    """A server in this event loop."""

    def __init__(self, app: App, port: int):
        self.app, self._port = app, port
        self._clients: list[Client] = []

    async def connect(self, sent: bytes = b"") -> Client:
        client = await asyncio.open_connection("127.0.0.1", self._port)
        self._clients.append(client)
        client[1].write(sent)
        return client

    async def ask(self, path: bytes = b"") -> tuple[int, bytes]:
        """Send a request on a connection of its own. Return the answer."""
        return await answer(await self.connect(HEAD % path + b"{}"))

    def close(self) -> None:
        for _, writer in self._clients:
            writer.close()


async def answer(client: Client) -> tuple[int, bytes]:
    """Return the status and the body of an answer. The body has chunks if it comes from our application."""
    head = await client[0].readuntil(b"\r\n\r\n")
    size = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: ")]
    body = await client[0].readexactly(int(size[0].split()[1])) if size else await client[0].readuntil(b"0\r\n\r\n")
    return int(head.split()[1]), body


async def is_closed(client: Client) -> bool:
    """Read until the connection ends."""
    with suppress(ConnectionError):
        while await client[0].read(1 << 16):
            pass
    return True


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    app = App()
    runner = Runner(app)
    runner.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    listener = socket.create_server(("127.0.0.1", 0))
    running = asyncio.ensure_future(runner.serve([listener]))
    found = Served(app, listener.getsockname()[1])
    try:
        yield found
    finally:
        found.close()
        app.go.set()
        runner.should_exit = True
        for connection in list(runner.server_state.connections):
            connection.transport.abort()
        await running


def play(scene: Callable[[Served], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with served() as server:
            await scene(server)

    asyncio.run(asyncio.wait_for(whole(), PATIENCE))


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: MOST_HERE)


@pytest.mark.parametrize(
    ("files", "expected"),
    [(1024, 1024 - OTHER_FILES), (256, 256 - OTHER_FILES), (100, 1), (1 << 20, MOST), (resource.RLIM_INFINITY, MOST)],
)
def test_as_many_as_there_are_files_for(files: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    assert most_connections() == expected


@pytest.mark.parametrize("sent", [b"", b"POST / HT", HEAD % b"" + b"{", HEAD % b"" + b"{}"])
def test_who_has_waited_longest_gives_way(sent: bytes) -> None:
    """Clients that sent nothing, a part of a request, or nothing after a request give way in the order of their
    arrival."""

    async def scene(server: Served) -> None:
        idle = [await server.connect(sent) for _ in range(3 * MOST_HERE)]
        assert (await server.ask())[0] == 200
        assert all([await is_closed(client) for client in idle[: 2 * MOST_HERE + 1]])
        idle[-1][1].write((HEAD % b"" + b"{}")[len(sent) :] or HEAD % b"" + b"{}")
        assert (await answer(idle[-1]))[0] == 200

    play(scene)


def test_who_is_answered_stays() -> None:
    """If all connections are being answered, a new one is refused, with an error in the API's form."""

    async def scene(server: Served) -> None:
        busy = [asyncio.ensure_future(server.ask(b"wait")) for _ in range(MOST_HERE)]
        for _ in busy:
            await server.app.begun.acquire()
        status, body = await server.ask()
        assert (status, json.loads(body)["error"]["code"]) == (503, "too_many_connections")
        server.app.go.set()
        assert [status for status, _ in await asyncio.gather(*busy)] == [200] * MOST_HERE
        assert (await server.ask())[0] == 200

    play(scene)


def test_who_does_not_read_gives_way() -> None:
    async def scene(server: Served) -> None:
        unread = [await server.connect(HEAD % b"long" + b"{}") for _ in range(MOST_HERE)]
        while (await server.ask())[0] != 200:  # until one of them is unread
            pass
        assert await is_closed(unread[0])

    play(scene)


@pytest.mark.parametrize("sent", [b"", b"POST / HT", HEAD % b"", HEAD % b"" + b"{"])
def test_who_is_slow(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has sent a part of a request gets an error. A client that waits for an answer has no time limit."""
    monkeypatch.setattr(connections, "ARRIVAL", 0.05)

    async def scene(server: Served) -> None:
        patient = asyncio.ensure_future(server.ask(b"wait"))
        await server.app.begun.acquire()
        slow = await server.connect(sent)
        if sent:
            status, body = await answer(slow)
            assert (status, json.loads(body)["error"]["code"]) == (408, "request_timeout")
        assert await slow[0].read() == b""
        server.app.go.set()
        assert (await patient)[0] == 200

    play(scene)


def test_requests_one_after_another_on_a_connection() -> None:
    """The time limit begins again with each request, even if all requests come at once."""

    async def scene(server: Served) -> None:
        client = await server.connect((HEAD % b"" + b"{}") * 3)
        assert [(await answer(client))[0] for _ in range(3)] == [200] * 3
        client[1].write(HEAD % b"")
        client[1].write(b"{}")
        assert (await answer(client))[0] == 200

    play(scene)


class Log:
    """The lines that a logger with a clock of its own lets through."""

    def __init__(self) -> None:
        self.now, self.said = 0.0, list[str]()
        self.filter = Rarely(clock=lambda: self.now)

    def say(self, text: str, *values: object, error: BaseException | None = None) -> None:
        info = None if error is None else (type(error), error, error.__traceback__)
        record = logging.LogRecord("uvicorn.error", logging.WARNING, __file__, 1, text, values, info)
        if self.filter.filter(record):
            self.said.append(record.getMessage())


def test_a_log_that_does_not_repeat_itself() -> None:
    log = Log()
    for i in range(1000):
        log.say("from %s", i)
        log.say(f"no file is left\nsocket: {i}")
    assert log.said == ["from 0", "no file is left\nsocket: 0"]
    log.now += PAUSE
    log.say("from %s", 7)
    assert log.said[2:] == ["from 7 [and 999 times more since this was last written]"]


def divide() -> None:
    raise ZeroDivisionError


def look_up() -> None:
    raise KeyError


def test_errors_of_different_places_are_told_apart() -> None:
    log = Log()
    for _ in range(3):
        for fails in (divide, look_up):
            with pytest.raises((ZeroDivisionError, KeyError)) as failed:
                fails()
            log.say("failed", error=failed.value)
    assert log.said == ["failed"] * 2
