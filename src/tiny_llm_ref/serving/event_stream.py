"""Answers that take their time: sent piece by piece, and given up when nobody is there to read them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .protocol import ApiError

__all__ = ["EventStream", "merged", "until_gone"]

_T = TypeVar("_T")


async def merged(sources: Sequence[AsyncGenerator[_T, None]]) -> AsyncGenerator[tuple[int, _T], None]:
    """What several generators yield, as it comes, each with its place. If one raises an error, all others end."""
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


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def until_gone(receive: Receive, work: Coroutine[Any, Any, _T], timeout: float) -> _T:
    """What some work gives. It is cancelled when the client goes away, or the time is over.

    Raises:
        ApiError: 504: the time is over. HTTPException: 499: nobody is there to read an answer.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait([working, gone], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise HTTPException(499, "the client went away") if gone.done() else _timed_out()
    finally:
        await _ended([working, gone])


class EventStream(Response):
    """A response of server-sent events, as they come.

    What is raised before the first event is raised here; after it, it is the last event. When the client goes away, or
    after `timeout` seconds (None: never), the events' generator is closed.
    Source: WHATWG, "HTML Living Standard", section 9.2, server-sent events.
    """

    def __init__(self, events: AsyncGenerator[str, None], timeout: float | None = None):
        super().__init__(None)
        self.events, self.timeout = events, timeout
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending, gone = asyncio.ensure_future(self._send_all(send)), asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait([sending, gone], timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            elif not gone.done():
                await _ended([sending])
                await self._fail(_timed_out(), send)
        finally:
            await _ended([sending, gone])
            await self.events.aclose()

    async def _send_all(self, send: Send) -> None:
        try:
            async for event in self.events:
                await self._send(event, send)
        except ApiError as error:
            await self._fail(error, send)
        else:
            await self._end(send)

    async def _fail(self, error: ApiError, send: Send) -> None:
        if not self._has_begun:
            raise error
        await self._send(json.dumps(error.body), send)
        await self._end(send)

    async def _send(self, event: str, send: Send) -> None:
        await self._begin(send)
        await send({"type": "http.response.body", "body": f"data: {event}\n\n".encode(), "more_body": True})

    async def _begin(self, send: Send) -> None:
        if not self._has_begun:
            self._has_begun = True
            headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _end(self, send: Send) -> None:
        await self._begin(send)
        await send({"type": "http.response.body", "body": b""})


def _timed_out() -> ApiError:
    return ApiError(504, "the request took too long", kind="server_error", code="timeout")


async def _ended(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    """Cancel tasks, and wait until they are over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
