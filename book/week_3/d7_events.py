"""Print each message that an event stream sends: to a client that stays or leaves, and when an error is raised."""

import asyncio

from tiny_llm.serving.event_stream import EventStream
from tiny_llm_given.serving.api_error import ApiError


async def events(*parts):
    try:
        for part in parts:
            if isinstance(part, ApiError):
                raise part
            yield part
            for _ in range(100):  # turns of the event loop, in which the client may leave
                await asyncio.sleep(0)
    finally:
        print("  (the events are closed)")


async def answer(title, stream, leaves_after=None):
    print(title)
    left, sent = asyncio.Event(), 0

    async def receive():
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        nonlocal sent
        sent += 1
        if sent == leaves_after:
            left.set()
        kind = message["type"].removeprefix("http.response.")
        print(
            f"  {kind:5}",
            message.get("status") or f"more: {message['more_body']!s:5} {message['body'].decode()!r}"[:88],
        )

    try:
        await stream({"type": "http"}, receive, send)
    except ApiError as error:
        print("  raised:", error.status, error)


async def main():
    late = ApiError(500, "out of memory", kind="server_error")
    full = ApiError(429, "come again later", kind="rate_limit_error")
    await answer("a client that stays", EventStream(events('{"n": 1}', '{"n": 2}', "[DONE]")))
    await answer("a client that leaves after the first event", EventStream(events('{"n": 1}', '{"n": 2}')), 2)
    await answer("an error before the first event", EventStream(events(full)))
    await answer("an error after it", EventStream(events('{"n": 1}', late)))


asyncio.run(main())
