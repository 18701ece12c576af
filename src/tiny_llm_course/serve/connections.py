"""Connections of `tiny-llm serve`: limits their number and the time for a request to arrive, and shortens the log."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["ARRIVAL", "ClientConnection", "Rarely", "Runner", "most_connections"]

ARRIVAL = 30.0  # seconds that a request, head and body, may take to arrive
SOME = 4096  # bytes to read at once; in HTTP chunks of one byte, so many bytes block the loop for about 15 ms
IDLE = 5  # seconds that a connection stays open between two requests
MOST = 1000  # the most connections; each takes about 20 KiB of memory
OTHER_FILES = 128  # other open files: accepted sockets that are not counted yet, models, libraries
ACCEPTED = 16  # connections that the loop accepts at once, before they are counted
QUEUED = 1024  # connections that the system accepts while the loop is busy
PAUSE = 60.0  # seconds between two equal lines of the log


def most_connections() -> int:
    """Return a limit on connections that keeps the process from running out of file descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if limit == resource.RLIM_INFINITY else max(1, min(MOST, limit - OTHER_FILES))


class ClientConnection(H11Protocol):
    """A client's connection. A connection that is waiting for its client may be closed in favour of a newer connection.

    most: how many connections may be open at the same time. waiting: the connections that wait for a request, or until
    their client reads, with the longest wait first.
    """

    def __init__(self, most: int, waiting: dict[ClientConnection, None], **about: Any):
        super().__init__(**about)
        self._most, self._waiting = most, waiting
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.max_size = SOME  # type: ignore[attr-defined]  # asyncio's default would read 256 KiB at once
        if len(self.connections) > self._most:
            self._make_room()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._wait()
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):  # the request is complete
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._waiting.setdefault(self)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._waiting.setdefault(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._waiting.pop(self, None)

    def _make_room(self) -> None:
        """Close the connection that has waited longest. If no connection is waiting, refuse the requests on this
        connection."""
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            self.app = _refuse
        else:
            oldest._stop_waiting()
            oldest.transport.abort()

    def _wait(self) -> None:
        self._waiting.setdefault(self)
        if self._timer is None:
            self._timer = self.loop.call_later(ARRIVAL, self._give_up)

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        """Close a connection whose request is late. If a part of the request has arrived, answer 408 first."""
        if self.conn.our_state is h11.SEND_RESPONSE or (self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]):
            self.transport.write(_too_slow(self.conn))
        self.transport.close()


def _too_slow(connection: h11.Connection) -> bytes:
    message = f"expected the whole request within {ARRIVAL:g} seconds, got a part of it"
    body = _body(message, "invalid_request_error", "request_timeout")
    headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
    response = h11.Response(status_code=408, reason="Request Timeout", headers=headers)
    parts = (response, h11.Data(data=body), h11.EndOfMessage())
    return b"".join(connection.send(part) or b"" for part in parts)


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    """Refuse a request with status 503. This ASGI application serves a connection that finds no room."""
    body = _body("every connection of this server is in use: ask again later", "server_error", "too_many_connections")
    headers = {"content-type": "application/json", "content-length": str(len(body)), "retry-after": "5"}
    sent = [(name.encode(), value.encode()) for name, value in (headers | {"connection": "close"}).items()]
    await send({"type": "http.response.start", "status": 503, "headers": sent})
    await send({"type": "http.response.body", "body": body})


def _body(message: str, kind: str, code: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


class Runner(uvicorn.Server):
    """A Uvicorn server with the limits of this module."""

    def __init__(self, app: Any):
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(ClientConnection, most_connections(), {}),  # type: ignore[arg-type]  # called like a class
                ws="none",  # a connection that changes its protocol would escape the limits
                lifespan="off",
                log_level="warning",
                timeout_keep_alive=IDLE,
                backlog=ACCEPTED,
            )
        )
        for name in ("uvicorn.error", "asyncio"):
            logging.getLogger(name).addFilter(Rarely())

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        for listener in sockets:
            listener.listen(QUEUED)  # asyncio has set the length of the system's queue to ACCEPTED


class Rarely(logging.Filter):
    """A filter that passes each message at most once in PAUSE seconds, and adds the number of times that the message
    was held back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next: dict[Any, float] = {}  # kind of message -> the time from which it may be logged again
        self._held: Counter[Any] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        key, now = _kind(record), self._clock()
        if now < self._next.get(key, now):
            self._held[key] += 1
            return False
        self._next[key] = now + PAUSE
        if held := self._held.pop(key, 0):
            record.msg = f"{record.msg} [and {held} times more since this was last written]"
        return True


def _kind(record: logging.LogRecord) -> Any:
    """Return a key that is the same each time a message is repeated. Only the message's first line counts, since
    asyncio writes addresses of objects into the other lines."""
    kind: list[Any] = [record.levelno, str(record.msg).partition("\n")[0]]
    if record.exc_info and record.exc_info[1] is not None:
        error, trace = record.exc_info[1:]
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        kind += [type(error), trace and (trace.tb_frame.f_code.co_filename, trace.tb_lineno)]
    return tuple(kind)
