"""Answers that take a while: the server sends an answer piece by piece, and stops when the client has left.

A response is an ASGI application: a coroutine function with three arguments. scope: a description of the HTTP request.
receive: waits for the client's next message, and returns it. {"type": "http.disconnect"} says that the client has
gone away; from then on, `receive` returns this message each time. send: sends a message to the client, and waits while
earlier messages are still on their way. The messages to send are: first {"type": "http.response.start",
"status": ..., "headers": [(name, value), ...]}, with names and values in bytes; then, for each piece of the answer,
{"type": "http.response.body", "body": bytes, "more_body": True}; finally, one such message with "more_body": False.
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
    """The error raised when the client has gone away, so nobody would read the answer."""


async def until_gone(receive: Receive, work: Coroutine[Any, Any, _T], timeout: float | None) -> _T:
    """Return the result of `work`, or raise its exception.

    Cancel the work when the client goes away, when the time limit is reached, or when the coroutine that called this
    function is cancelled. In each case, wait until the work has ended. Read and ignore all messages from the client
    other than "http.disconnect".
    timeout: the time limit in seconds; None means no limit.

    Raises:
        ApiError: the time limit is reached. The error's status is 504, its message is "the request took too long", its
            kind is "server_error", and its code is "timeout".
        ClientGoneError: the client has gone away.

    Task: w3d7.3
    """
    raise NotImplementedError(
        "Week 3 Day 7 Task 3: until_gone is yours to write. Chapter: A server. Test: ./course test w3d7.3"
    )


async def _ended(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    """Cancel tasks, and wait until all of them have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class EventStream:
    """A response that consists of server-sent events.

    events: a generator of the events' texts, each a single line. timeout: how many seconds the whole response may take;
    None means no limit.
    Source: WHATWG, "HTML Living Standard", section 9.2, server-sent events.
    """

    HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))

    def __init__(self, events: AsyncGenerator[str, None], timeout: float | None = None):
        self.events, self.timeout = events, timeout

    @staticmethod
    def encode(event: str) -> bytes:
        """Return the bytes of an event, in UTF-8: `data: ` and the text on one line, then an empty line.

        Task: w3d7.4
        """
        raise NotImplementedError(
            "Week 3 Day 7 Task 4: EventStream.encode is yours to write. Chapter: A server. Test: ./course test w3d7.4"
        )

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send each event, encoded, as soon as it comes.

        Send the status, 200, right before the first event, or at the end if there was no event. If an ApiError occurs
        before the status is sent, or while `send` is still waiting to send the status, raise this error, so that the
        client gets the error's own status. Send a later ApiError, including that of the time limit, as the last event:
        the error's body as JSON. When the client goes away, send nothing more. In all these cases, close `events`
        first, so that the generator frees its resources.

        Task: w3d7.4
        """
        raise NotImplementedError(
            "Week 3 Day 7 Task 4: EventStream.__call__ is yours to write. Chapter: A server. Test: ./course test w3d7.4"
        )


async def merged(sources: Sequence[AsyncGenerator[_T, None]]) -> AsyncGenerator[tuple[int, _T], None]:
    """Yield the items of several generators as they come, each with the index of its generator. If one generator raises
    an error, end all other generators, and raise this error."""
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
