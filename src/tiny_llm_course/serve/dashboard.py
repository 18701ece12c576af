"""Describes a running engine for the dashboard of `tiny-llm serve`: the running and waiting requests, and the owner of
each cache page."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from .engine_protocols import AsyncEngine, Batch, EndedRequest, Engine, Request, Scheduler

__all__ = ["Dashboard"]

INTERVAL = 0.1  # seconds between two updates of the web page; an engine runs hundreds of steps per second
MOST_EVENTS = 200  # updates per second for all readers together; with many readers, each reader sees fewer
WINDOW = 2.0  # seconds over which the speed is measured
FREE, KEPT = -2, -1  # holders of a page that nobody holds, and of a page that only the prefix tree holds


class _Speed:
    """Generated tokens per second over the last WINDOW seconds, or since the second-to-last step if that step was
    earlier."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()  # a time, and the number of tokens until then
        self._is_idle = True

    def note(self, now: float, tokens: int, is_idle: bool) -> None:
        """Record the number of tokens generated until `now`.

        is_idle: whether nothing is computed until the next call.
        """
        if self._is_idle and self.at(now) == 0:
            self._seen.clear()  # do not count a long time without work as a slow step
        self._seen.append((now, tokens))
        self._is_idle = is_idle

    def at(self, now: float) -> float:
        while len(self._seen) > 1 and now - self._seen[1][0] >= WINDOW:
            self._seen.popleft()
        if not self._seen or now == self._seen[0][0]:
            return 0.0
        (start, before), (_, tokens) = self._seen[0], self._seen[-1]
        return (tokens - before) / (now - start)


class Dashboard:
    """An observer that counts tokens and, on request, describes an engine between two steps.

    ended: the finished requests that a `Metrics` remembers.
    """

    ended: Iterable[EndedRequest] = ()

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock, self._speed = clock, _Speed()
        self._steps = self._preempted = self._ended = 0
        self._chunks: dict[str, int] = {}  # request id -> the number of its tokens in the last step
        self._num_readers = 0
        self._looking: asyncio.Future[str] | None = None  # the last description, which all readers share
        self._looked = 0.0

    def on_step(self, engine: Engine, batch: Batch, touched: Sequence[Request]) -> None:
        self._steps += 1
        self._preempted += len(batch.preempted)
        self._chunks = {chunk.request.id: len(chunk.tokens) for chunk in batch.chunks}
        self._ended += sum(len(request.output) for request in touched if request.finish_reason is not None)
        self._note(engine)

    def on_abort(self, engine: Engine, request: Request) -> None:
        self._ended += len(request.output)
        self._note(engine)

    def _note(self, engine: Engine) -> None:
        tokens = self._ended + sum(len(request.output) for request in engine.scheduler)
        self._speed.note(self._clock(), tokens, is_idle=not engine.has_work)

    def look(self, engine: Engine) -> dict[str, Any]:
        """Return the values that the web page shows; `rate` is in generated tokens per second. Call this method in the
        engine's thread."""
        scheduler = engine.scheduler
        return {
            "steps": self._steps,
            "preempted": self._preempted,
            "rate": round(self._speed.at(self._clock()), 1),
            "running": [self._about(request) for request in scheduler.running],
            "waiting": [{"id": request.id, "prompt": len(request.prompt)} for request in scheduler.waiting],
            "slots": scheduler.max_running,
            "pages": _pages(scheduler),
            "finished": [_finished(each) for each in self.ended],
        }

    def _about(self, request: Request) -> dict[str, Any]:
        return {
            "id": request.id,
            "prompt": len(request.prompt),
            "output": len(request.output),
            "stored": request.num_computed_tokens,
            "chunk": self._chunks.get(request.id, 0),
            "drafted": request.num_drafted,
            "accepted": request.num_accepted,
        }

    async def events(self, engine: AsyncEngine) -> AsyncGenerator[str, None]:
        """Until the engine ends, yield the values that the web page shows, as JSON, whenever a value changes."""
        before = ""
        self._num_readers += 1
        try:
            while not engine.is_stopping:
                look = await self._shared_look(engine)
                if look != before:
                    before = look
                    yield look
                await asyncio.sleep(max(INTERVAL, self._num_readers / MOST_EVENTS))
        finally:
            self._num_readers -= 1

    async def _shared_look(self, engine: AsyncEngine) -> str:
        """Return the latest description if it is less than INTERVAL seconds old, or wait for it if it is still being
        made. Otherwise make a new description."""
        now = self._clock()
        if self._looking is None or (self._looking.done() and now - self._looked >= INTERVAL):
            self._looking, self._looked = asyncio.ensure_future(self._as_json(engine)), now
        return await asyncio.shield(self._looking)  # a reader who leaves must not cancel the others' description

    async def _as_json(self, engine: AsyncEngine) -> str:
        return json.dumps(await engine.call(self.look))


def _finished(ended: EndedRequest) -> dict[str, Any]:
    rounded = {"first": _rounded(ended.first, 3), "rate": _rounded(ended.rate, 1)}
    return {name: getattr(ended, name) for name in ("id", "prompt", "output", "reason")} | rounded


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _pages(scheduler: Scheduler) -> dict[str, Any] | None:
    """Return the holder of each page of a cache (the index of a running request, FREE or KEPT), and the pages that
    several requests share."""
    pool = getattr(scheduler.cache, "pool", None)
    if pool is None:
        return None
    owners = [FREE if not pool.holders(page) else KEPT for page in range(pool.num_pages)]
    shared = set()
    for place, request in enumerate(scheduler.running):
        for page in request.pages:
            shared |= {page} if owners[page] >= 0 else set()
            owners[page] = place
    return {"size": pool.page_size, "owners": owners, "shared": sorted(shared)}
