"""The connection between an event loop, which must never block, and an engine, whose steps run in a thread of their
own."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias, TypeVar

from .engine import Engine
from .request import FinishReason, Request
from .sampling_params import Logprobs

__all__ = ["AsyncEngine", "Counts", "EngineStoppedError", "Job", "QueueFullError", "Stream", "Update"]

_T = TypeVar("_T")
Job: TypeAlias = Callable[[Engine], None]


class QueueFullError(RuntimeError):
    """The error raised when a new request would exceed the limit on running and waiting requests."""


class EngineStoppedError(RuntimeError):
    """The error raised when the engine takes no more requests."""


@dataclass(frozen=True)
class Counts:
    """Token counts. cached: prompt tokens that did not have to be computed. drafted: guessed tokens. accepted:
    guesses that the model accepted. thinking: thinking tokens, which are part of the output."""

    prompt: int = 0
    output: int = 0
    cached: int = 0
    drafted: int = 0
    accepted: int = 0
    thinking: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Add the counts of several requests."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Counts(*(one + another for one, another in pairs))


@dataclass(frozen=True)
class Update:
    """An update about a request: its new tokens and text.

    tokens: the output's new tokens. text: the new text that no later token can change. finish_reason: why the request
    finished; None before the last update. error: the exception that ended the request, or None.

    The server fills in the other fields (`Choice.take`). thinking: the new thinking text; None if there is no new
    thinking. logprobs: the log-probabilities of the answer's new tokens; None if the client did not ask for them.
    counts: how many tokens of each kind the request has; None before the last update.
    """

    tokens: tuple[int, ...]
    text: str
    finish_reason: FinishReason | None = None
    error: Exception | None = None
    thinking: str | None = None
    logprobs: Sequence[Logprobs] | None = None
    counts: Counts | None = None


class Stream:
    """A stream of updates, which the engine's thread writes and a coroutine of the event loop reads."""

    def __init__(self) -> None:
        self.request: Request | None = None  # set once the engine has the request
        self.updates: asyncio.Queue[Update] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._num_tokens = self._num_characters = 0  # tokens and characters published so far

    def publish(self) -> None:
        """Put an `Update` into `updates`: the request's tokens and text since the last call, and the request's
        finish_reason and error. The engine's thread calls this method.

        An asyncio.Queue belongs to one event loop, and only the thread that runs this loop may touch the queue.

        Task: w3d7.1
        """
        raise NotImplementedError(
            "Week 3 Day 7 Task 1: Stream.publish is yours to write. Chapter: A server. Test: ./course test w3d7.1"
        )

    def fail(self, error: Exception) -> None:
        """End the stream with this error, because the engine is broken. The engine's thread calls this method."""
        self._loop.call_soon_threadsafe(self.updates.put_nowait, Update((), "", "error", error))


class AsyncEngine:
    """Access to an engine for the coroutines of one event loop.

    The engine is made and used in one thread, because each of MLX's streams belongs to one thread, and an engine has no
    locks. Other threads queue jobs: functions whose argument is the engine. The engine's thread runs the jobs between
    two steps.
    make_engine: a function that makes the engine. max_requests: how many requests may run or wait at the same time.
    """

    def __init__(self, make_engine: Callable[[], Engine], max_requests: int = 64):
        self.max_requests = max_requests
        self.num_requests = 0  # only the loop's thread uses this number
        self.num_aborted = 0  # requests that `stop` has aborted
        self._make_engine = make_engine
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._streams: dict[str, Stream] = {}  # keyed by request id; only the engine's thread uses this dict
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self.broken = asyncio.Event()  # set after `serve` raised `error`, which should never happen
        self.error: Exception | None = None
        self._over = asyncio.Event()  # set when the thread ends

    async def start(self) -> None:
        """Start the engine's thread, which makes the engine. If `make_engine` raises an error, or this coroutine is
        cancelled, wait until the thread has ended, then raise that error or CancelledError."""
        self._loop = asyncio.get_running_loop()
        made: Future[None] = Future()
        made.set_running_or_notify_cancel()  # now nothing can cancel `made`, and the thread may set its result
        self._thread = threading.Thread(target=self._run, args=(made,), name="engine", daemon=True)
        self._thread.start()
        try:
            await asyncio.wrap_future(made)
        except BaseException:  # a Ctrl-C while the model is loaded cancels this coroutine
            await self.stop()  # Python aborts if the process ends while the thread still runs
            raise

    async def stop(self, timeout: float | None = None) -> None:
        """Take no more requests, and return when all requests that are being served have ended. After `timeout` seconds
        (None: never), abort the remaining requests."""
        self._is_stopping = True
        self._jobs.put(lambda engine: None)  # wakes the engine's thread if it waits for a job
        if self._thread is not None:
            try:
                await asyncio.wait_for(self._over.wait(), timeout)
            except asyncio.TimeoutError:
                self._jobs.put(self.abort_all)
                await self._over.wait()
            _join(self._thread)

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping or self.error is not None

    def _run(self, made: "Future[None]") -> None:
        self._make_and_serve(made)
        with suppress(RuntimeError):  # if the loop is closed, nothing waits for this event
            self._loop.call_soon_threadsafe(self._over.set)

    def _make_and_serve(self, made: "Future[None]") -> None:
        try:
            engine = self._make_engine()
        except BaseException as error:
            made.set_exception(error)
            return
        made.set_result(None)
        try:
            self.serve(engine)
        except Exception as error:
            self._refuse(engine, error)

    def _refuse(self, engine: Engine, error: Exception) -> None:
        """Run jobs until `stop` is called, and end every stream with this error, so that no client waits in vain."""
        self.error = error
        self._loop.call_soon_threadsafe(self.broken.set)
        while not (self._is_stopping and self._jobs.empty()):
            for stream in self._streams.values():
                stream.fail(error)
            self._streams.clear()
            with suppress(Exception):
                self._jobs.get()(engine)

    async def call(self, function: Callable[[Engine], _T]) -> _T:
        """Let the engine's thread call a function between two steps. Return the function's result, or raise its
        error."""
        result: Future[_T] = Future()

        def job(engine: Engine) -> None:
            if not result.set_running_or_notify_cancel():
                return  # nothing waits for the result any more
            try:
                result.set_result(function(engine))
            except BaseException as error:
                result.set_exception(error)

        self._jobs.put(job)
        return await asyncio.wrap_future(result)

    def serve(self, engine: Engine) -> None:
        """Run steps, and queued jobs between steps, until `stop` has been called and no request is left. The engine's
        thread calls this method.

        Before each step, run all queued jobs, in order. Then, if the engine has work, run a step, and publish each
        request that the step returns. If the engine has no work, wait for a job, without using processor time. If a
        step raises an exception, end all requests with `fail`, publish the requests that `fail` returns, and go on.

        `stop` sets `_is_stopping`, and queues a job that only wakes this thread. The thread may run this job long
        before the last request finishes, and may never get another job.

        Task: w3d7.1
        """
        raise NotImplementedError(
            "Week 3 Day 7 Task 1: AsyncEngine.serve is yours to write. Chapter: A server. Test: ./course test w3d7.1"
        )

    async def generate(self, make_request: Callable[[], Request]) -> AsyncGenerator[Update, None]:
        """Serve a request, and yield its updates as they come; the last update has a finish_reason.

        make_request: a function that `begin` calls in the engine's thread. A client that stops listening closes the
        generator or cancels the coroutine that waits for an update. In both cases, and when the request has finished,
        decrease `num_requests`, and queue a job that calls `end`, without waiting for the job.

        Raises:
            QueueFullError, EngineStoppedError: as in `check_open`, before anything else happens.
            ValueError: as in `make_request` or `Engine.add`.

        Task: w3d7.2
        """
        raise NotImplementedError(
            "Week 3 Day 7 Task 2: AsyncEngine.generate is yours to write. Chapter: A server. Test: ./course test w3d7.2"
        )
        yield  # what makes this an asynchronous generator

    def check_open(self, count: int = 1) -> None:
        """Check that the engine can take `count` more requests.

        Raises:
            EngineStoppedError: the engine is stopping (`is_stopping`).
            QueueFullError: with these requests, more than max_requests requests would run or wait.

        Task: w3d7.2
        """
        raise NotImplementedError(
            "Week 3 Day 7 Task 2: AsyncEngine.check_open is yours to write. "
            "Chapter: A server. "
            "Test: ./course test w3d7.2"
        )

    def begin(self, engine: Engine, make_request: Callable[[], Request], stream: Stream) -> None:
        """Make a request, add it to the engine, and connect a stream to the request. The engine's thread calls this
        method."""
        request = make_request()
        engine.add(request)
        stream.request = request
        self._streams[request.id] = stream

    def end(self, engine: Engine, stream: Stream) -> None:
        """Forget a stream to which no client listens any more, and abort the stream's request. The engine's thread
        calls this method."""
        if stream.request is not None:
            self._streams.pop(stream.request.id, None)
            engine.abort(stream.request.id)  # does nothing if the request has finished

    def publish(self, request: Request) -> None:
        """Publish an update about a request, if the request has a stream. The engine's thread calls this method."""
        if request.id in self._streams:
            self._streams[request.id].publish()

    def abort_all(self, engine: Engine) -> None:
        """Abort all requests. The engine's thread calls this method."""
        for request in list(engine.scheduler):
            engine.abort(request.id)
            self.num_aborted += 1
            self.publish(request)

    def fail(self, engine: Engine, error: Exception) -> list[Request]:
        """End all requests with this error, and return them. The engine's thread calls this method."""
        requests = list(engine.scheduler)
        for request in requests:
            engine.abort(request.id, error)
        return requests


def _join(thread: threading.Thread) -> None:
    """Wait until a thread has ended, both in Python and in the operating system.

    Each thread has MLX random keys of its own, which the Python interpreter frees when the thread ends. Up to Python
    3.12, `join` returns before the keys are freed, and a process that exits at that moment is aborted.
    """
    thread.join()
    while Path(f"/proc/self/task/{thread.native_id}").exists():  # on Linux, the end of a thread removes this folder
        time.sleep(0.001)
    if sys.platform == "darwin":  # macOS does not show whether a thread has ended
        time.sleep(0.05)
