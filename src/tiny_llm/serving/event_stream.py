"""Answers that take their time: they are sent piece by piece, and given up when the client has left.

A response is an ASGI application: a coroutine function that is given three things. scope: what is known of the HTTP
request. receive: waits for the next message of the client, and returns it; {"type": "http.disconnect"} says that the
client went away; from then on, `receive` returns it each time. send: sends a message to the client, and waits while
earlier messages are still on their way. The messages are: first {"type": "http.response.start", "status": ...,
"headers": [(name, value), ...]}, in bytes; then {"type": "http.response.body", "body": bytes, "more_body": True}, as
often as there is something to send; at last one with "more_body": False.
Source: "ASGI Specification", HTTP & WebSocket message format, version 2.3, asgi.readthedocs.io.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, MutableMapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

from tiny_llm_given.serving.api_error import ApiError

__all__ = ["ClientGoneError", "EventStream", "Receive", "Send", "merged", "until_gone"]

_T = TypeVar("_T")
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ClientGoneError(Exception):
    """The client went away, so an answer would have no reader."""


async def until_gone(receive: Receive, work: Coroutine[Any, Any, _T], timeout: float | None) -> _T:
    """Return what `work` returns, or raise what it raises.

    The work is cancelled when the client goes away, when the time is over, and when the coroutine that waits here is
    cancelled. It has ended when this function ends. Anything else that the client sends is read and ignored.
    timeout: seconds; None: as long as the work takes.

    Raises:
        ApiError: the time is over. Its status is 504, its message "the request took too long", its kind "server_error",
            its code "timeout".
        ClientGoneError: the client went away.

    Task: w3d7.3
    """
    raise NotImplementedError(
        "Week 3 Day 7 Task 3: until_gone is yours to write. Chapter: A server. Test: ./course test w3d7.3"
    )


async def _ended(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    """Cancel tasks, and wait until they are over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class EventStream:
    """A response of server-sent events.

    events: the texts of the events, each of one line. timeout: the seconds that the whole response may take; None: as
    long as it takes.
    Source: WHATWG, "HTML Living Standard", section 9.2, server-sent events.
    """

    HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))

    def __init__(self, events: AsyncGenerator[str, None], timeout: float | None = None):
        self.events, self.timeout = events, timeout

    @staticmethod
    def encode(event: str) -> bytes:
        """Return an event as a client gets it: `data: `, the text, and an empty line, in UTF-8.

        Task: w3d7.4
        """
        raise NotImplementedError(
            "Week 3 Day 7 Task 4: EventStream.encode is yours to write. Chapter: A server. Test: ./course test w3d7.4"
        )

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send each event, encoded, as soon as it comes.

        The status, 200, goes out with the first event, or at the end if there was none. Before that, and while `send`
        still waits to send the status, an ApiError is raised here, and the client gets that error's status. An ApiError
        that is raised later, also when the time is over, becomes the last event, with its body as JSON. When the client
        goes away, nothing more is sent. Whatever happens, `events` is then closed before anything else is sent, so that
        what it holds is free.

        Task: w3d7.4
        """
        raise NotImplementedError(
            "Week 3 Day 7 Task 4: EventStream.__call__ is yours to write. Chapter: A server. Test: ./course test w3d7.4"
        )


async def merged(sources: Sequence[AsyncGenerator[_T, None]]) -> AsyncGenerator[tuple[int, _T], None]:
    """Yield what several generators yield, as it comes, each item with the number of its generator. If one generator
    raises an error, all others end."""
    found: asyncio.Queue[tuple[int, _T] | BaseException | None] = asyncio.Queue()

    async def feed(place: int, source: AsyncGenerator[_T, None]) -> None:
        try:
            async with aclosing(source):
                async for item in source:
                    found.put_nowait((place, item))
            found.put_nowait(None)
        except Exception as error:
            found.put_nowait(error)

    tasks = [asyncio.ensure_future(feed(*each)) for each in enumerate(sources)]
    try:
        for _ in tasks:
            while (item := await found.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
    finally:
        await _ended(tasks)
