"""Ends `tiny-llm serve`: after a signal, the running requests finish; a second signal aborts these requests."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Any

from ..ui import Messages, show_note
from .engine_protocols import AsyncEngine

__all__ = ["DRAIN", "Ending"]

DRAIN = 20  # seconds in which running requests may finish after the first signal
READ = 5  # further seconds in which clients may read their answers
CUT = 2  # seconds from the second signal until the process ends, even in the middle of a step


class Ending:
    """A watcher that ends a server when a signal arrives or the engine breaks, and tells the user what the server is
    waiting for.

    Signals are handled as soon as the object is created. runner: a `uvicorn.Server` that is not running yet.
    """

    def __init__(self, runner: Any, engine: AsyncEngine, words: Messages):
        self._runner, self._engine, self._words = runner, engine, words
        self._loop = asyncio.get_running_loop()
        self._stops: list[asyncio.Task[None]] = []  # asyncio itself keeps no reference to tasks
        self._num_running = self._num_unread = 0  # requests at the first signal; connections closed unread
        self._signals: SimpleQueue[int] = SimpleQueue()  # the only queue that signal handlers may always use
        runner.capture_signals = nullcontext
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: self._signals.put(number))
        threading.Thread(target=self._watch, name="signals", daemon=True).start()

    async def serve(self, listener: Any) -> None:
        """Run the server until a signal or an error of the engine ends it."""
        watching = asyncio.ensure_future(self._end_if_broken())
        await self._runner.serve(sockets=[listener])
        watching.cancel()
        await asyncio.gather(*self._stops)

    def tell(self) -> None:
        """Tell the user what happened to the requests."""
        cut = self._engine.num_aborted
        if cut:
            show_note(self._words("serve_cut", cut=cut, count=self._num_running), style="yellow")
        if self._num_unread:
            show_note(self._words("serve_unread", count=self._num_unread), style="yellow")
        show_note(self._words("serve_answered" if self._num_running and not cut else "serve_stopped"))

    def _watch(self) -> None:
        """Handle signals in a separate thread, so that signals work even while the loop is busy."""
        self._next_signal()
        self._num_running = self._engine.num_requests
        if self._num_running:
            show_note(self._words("serve_waits", count=self._num_running, seconds=DRAIN))
        self._ask_to_end()
        self._next_signal()
        show_note(self._words("serve_cuts"))
        self._ask_to_end()
        with suppress(Empty):
            self._next_signal(CUT)
        cut = self._engine.num_requests + self._engine.num_aborted
        show_note(self._words("serve_forced", count=cut), style="yellow")
        os._exit(0)  # only `_exit` ends a process while one of its threads computes

    def _next_signal(self, timeout: float | None = None) -> None:
        if self._signals.get(timeout=timeout) == signal.SIGINT and sys.stderr.isatty():
            show_note()  # after the terminal's ^C

    def _ask_to_end(self) -> None:
        with suppress(RuntimeError):  # the server has ended, so the loop is closed
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._stops.append(asyncio.ensure_future(self._stop(0, 1) if self._stops else self._stop(DRAIN, READ)))
        self._runner.should_exit = True

    async def _stop(self, served: float, read: float) -> None:
        await self._engine.stop(served)
        self._loop.call_later(read, self._hang_up)

    def _hang_up(self) -> None:
        for connection in list(self._runner.server_state.connections):
            self._num_unread += 1
            connection.transport.abort()  # ends a stream as if the client had disconnected

    async def _end_if_broken(self) -> None:
        await self._engine.broken.wait()
        self._end()
