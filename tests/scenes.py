"""Scenes around a server, played with the code under test. Each scene returns what it saw.

`Steps`, an engine that the scene controls, takes the place of the real engine, and `Client` that of a real client.
`memory_of_a_token`, `steps_ahead` and `steps_submitted` belong to week 2, and need no server. In grading, a scene runs
in the submission's process. That process does not learn the expected result, because a scene only returns data.
"""

from __future__ import annotations

import asyncio
import builtins
import math
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import ContextVar
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, TypeAlias

import mlx.core as mx
from hangs import HangError, Turns, Watch, blocked_loop, hang
from stalled import steps_ahead, steps_submitted

__all__ = ["Jobs", "memory_of_a_token", "play", "settle", "steps_ahead", "steps_submitted"]

Scene: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
PATIENCE, SHORT_PATIENCE = 10.0, 1.0  # seconds; SHORT_PATIENCE holds after a first hang, and for known mistakes
PAUSE = 0.02  # seconds between two looks at a scene
MAX_STEPS = 200  # of the engine; several times as many as a scene needs
_hung: list[str] = []  # the scenes in this process that hung
_watch: ContextVar[Watch | None] = ContextVar("_watch", default=None)  # the watch of the scene that runs


def play(impl: Any, scene: Scene, *arguments: Any) -> Any:
    """Play a scene, and return what it saw. Raise the scene's error, or a HangError if the scene does not end."""
    from tiny_llm_course.diagnosis.package_under_test import Package, is_replayed

    __tracebackhide__ = True
    if not isinstance(impl, Package):
        return impl.play(scene.__name__, *arguments)
    seen: Future[Any] = Future()
    patience = SHORT_PATIENCE if is_replayed() or _hung else PATIENCE
    watch = Watch()

    async def see() -> None:
        _watch.set(watch)
        try:
            seen.set_result(await whole(scene(impl, *arguments), patience))
        except BaseException as error:
            seen.set_exception(error)

    def run() -> None:
        try:
            asyncio.run(see(), debug=True)
        except BaseException as error:  # such as SystemExit, which ends the loop
            if not seen.done():
                seen.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)  # a daemon, because it may hang
    thread.start()
    clock = Clock()
    while not wait([seen], PAUSE).done and clock.seconds() < patience + 2:
        watch.look(thread)
    error = seen.exception() if seen.done() else blocked_loop(thread, patience + 2)
    if isinstance(error, HangError):
        if not is_replayed():
            _hung.append(scene.__name__)
        raise error
    thread.join(1)
    return seen.result()


class Clock:
    """A clock that counts the seconds in which this process computes or sleeps, but not those in which other processes
    keep it from computing."""

    def __init__(self) -> None:
        self._total = 0.0
        self._now, self._computed = time.monotonic(), time.process_time()

    def seconds(self) -> float:
        """Return the seconds counted so far. Call this method after each PAUSE: if more time has passed almost without
        computing, the rest counts as time of other processes."""
        before, computed = self._now, self._computed
        self._now, self._computed = time.monotonic(), time.process_time()
        used, passed = self._computed - computed, self._now - before
        self._total += used if used > passed / 20 else min(passed, PAUSE)
        return self._total


async def whole(scene: Coroutine[Any, Any, Any], patience: float = PATIENCE) -> Any:
    """Return what a scene saw. Raise a HangError if the scene takes more than `patience` seconds, or if all of its
    threads wait in vain."""
    loop, threads = asyncio.get_running_loop(), threading.enumerate()
    loop.slow_callback_duration = PATIENCE  # in debug mode, the loop logs slower callbacks
    playing, stuck = asyncio.ensure_future(scene), loop.create_future()
    if watch := _watch.get():
        watch.begin(stuck)
    clock = Clock()
    while not (playing.done() or stuck.done()) and clock.seconds() < patience:
        await asyncio.wait([playing, stuck], timeout=PAUSE, return_when=asyncio.FIRST_COMPLETED)
    if not playing.done():
        error = hang(playing, threads, None, stuck.result()) if stuck.done() else hang(playing, threads, patience)
        playing.cancel()
        await asyncio.wait([playing], timeout=0.5)
        raise error
    return playing.result()


async def settle(turns: int = 100) -> None:
    """Let the loop run for this many turns, by default far more than any answer needs, however slow the machine is."""
    for _ in range(turns):
        await asyncio.sleep(0)  # takes one turn, but no time


async def pass_time(seconds: float) -> None:
    """Let the loop run for this many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await settle(1)


class Jobs(SimpleQueue[Any]):
    """An engine's queue of jobs. It records whether the engine's thread sleeps while it waits for a job."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns()
        self._looks = 0
        self._resting: asyncio.Future[bool] | None = None  # set while `rest` waits

    async def rest(self, served: Any) -> bool:
        """Wait until the idle engine's thread goes to sleep, or has looked for a job ten times without sleeping. Return
        whether the thread sleeps."""
        resting = asyncio.get_running_loop().create_future()
        await served.call(lambda engine: self._watch(resting))
        return await resting

    def _watch(self, resting: asyncio.Future[bool]) -> None:
        self._looks, self._resting = 0, resting

    def _looked(self, sleeps: bool = False) -> None:
        self._looks += 1
        resting = self._resting
        if resting is not None and (sleeps or self._looks == 10):
            self._resting = None
            _tell(resting.get_loop(), lambda: resting.done() or resting.set_result(sleeps))

    def empty(self) -> bool:
        self._looked()
        return super().empty()

    def put(self, *arguments: Any, **options: Any) -> None:
        self.turns.give()
        super().put(*arguments, **options)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._looked(sleeps=block and (timeout is None or timeout > 0.02) and super().empty())
        with self.turns.taking(waits=block and timeout is None):
            return super().get(block, timeout)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *arguments: Any) -> None:
    """Make the loop call this function, unless the scene is over. Any thread may call `_tell`."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback, *arguments)


class Work:
    """A request for `count` tokens: 10, 11, 12, ... The text of a token comes one step after the token, but the text of
    the last token comes with this token."""

    def __init__(self, id: str, count: int = 3, has_text: bool = True):
        self.id, self.count = id, count
        self.output: list[int] = []
        self.text = SimpleNamespace(text="") if has_text else None
        self.finish_reason: str | None = None
        self.error: Exception | None = None

    def go_on(self) -> None:
        self.output.append(10 + len(self.output))
        if len(self.output) == self.count:
            self.finish("length")
        if self.text is not None:
            known = len(self.output) - (self.finish_reason is None)
            self.text.text = "".join(f"<{token}>" for token in self.output[:known])

    def finish(self, reason: str, error: Exception | None = None) -> None:
        self.finish_reason, self.error = reason, error


class Steps:
    """An engine that writes its calls and steps into `log`.

    A step ends when the loop takes its next turn, so the engine cannot outrun a slow loop. is_paced: whether each step
    waits until `allow` permits its end. turns: whether each step computes a token for only one of the requests.
    """

    def __init__(self, is_paced: bool = False, turns: bool = False):
        self.log: list[str] = []
        self.works: dict[str, Work] = {}
        self.threads: set[int] = set()
        self.error: Exception | None = None  # raised in the next step
        self.is_in_step = self.is_over = False
        self._is_paced, self._permits, self.turns = is_paced, threading.Semaphore(0), Turns()
        self._turns = turns
        self._loop, self._has_begun = asyncio.get_running_loop(), asyncio.Event()  # the loop's view of the current step
        self._num_steps, self._watch = 0, _watch.get()

    @property
    def scheduler(self) -> list[Work]:
        return list(self.works.values())

    @property
    def has_work(self) -> bool:
        self._used()
        return bool(self.works)

    def _used(self) -> None:
        if self.is_over:
            raise SystemExit  # ends this thread, which is no longer needed
        self.threads.add(threading.get_ident())

    def add(self, work: Work) -> None:
        self._used()
        if work.count < 1:
            raise ValueError("expected at least one token, got none")
        self.log.append(f"add {work.id}")
        self.works[work.id] = work

    def abort(self, id: str, error: Exception | None = None) -> None:
        self._used()
        if id in self.works:
            self.log.append(f"abort {id}")
            self.works.pop(id).finish("abort" if error is None else "error", error)

    def step(self) -> list[Work]:
        self._used()
        self.log.append("step")
        self.is_in_step = True
        self._num_steps += 1
        if self._num_steps == MAX_STEPS and self._watch is not None:
            served = ", ".join(map(repr, self.works))
            _tell(self._loop, self._watch.give_up, f"the engine has made {MAX_STEPS} steps, and still serves {served}")
        _tell(self._loop, self._has_begun.set if self._is_paced else self.allow)
        with self.turns.taking():
            self._permits.acquire()
        _tell(self._loop, self._has_begun.clear)
        self.is_in_step = False
        self._used()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        chosen = self.scheduler[:1] if self._turns else self.scheduler
        for work in chosen:
            work.go_on()
            del self.works[work.id]  # the request moves to the end of the queue, or leaves if it has finished
            if work.finish_reason is None:
                self.works[work.id] = work
        return chosen

    def allow(self, count: int = 1) -> None:
        """Allow this many more steps to end."""
        self.turns.give(count)
        self._permits.release(count)

    def go_on(self) -> None:
        """Let all steps end by themselves from now on."""
        self._is_paced = False
        self.allow()

    async def in_step(self) -> None:
        """Wait until the engine is in a step that is not allowed to end yet."""
        await self._has_begun.wait()

    def end(self) -> None:
        """From now on, make every use of this engine end the thread that uses it."""
        self.is_over = True
        self.go_on()


async def _served(
    impl: Any, engine: Steps, body: Callable[[Any], Coroutine[Any, Any, Any]], max_requests: int = 64
) -> Any:
    """Start an AsyncEngine that uses this engine, and return what `body`, the scene, saw. Then stop the AsyncEngine. If
    an error has broken the engine's thread, raise this error."""
    whole = impl.serving.async_engine.AsyncEngine(lambda: engine, max_requests)
    whole._jobs = Jobs()
    await whole.start()
    if watch := _watch.get():
        watch.follow(whole._thread, whole._jobs.turns, engine.turns)
    playing, broken = asyncio.ensure_future(body(whole)), asyncio.ensure_future(whole.broken.wait())
    try:
        await asyncio.wait([playing, broken], return_when=asyncio.FIRST_COMPLETED)
        if whole.error is not None:
            raise whole.error
        seen = playing.result()
        await whole.stop()
        return seen
    finally:
        engine.end()
        for task in (playing, broken):
            task.cancel()
        await asyncio.gather(playing, broken, return_exceptions=True)


def told(update: Any) -> tuple[list[int], str, str | None, str]:
    return list(update.tokens), update.text, update.finish_reason, str(update.error or "")


class Watched(asyncio.Queue[Any]):
    """A queue that only the thread that made it may put items into."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def put_nowait(self, item: Any) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError("an asyncio.Queue was touched by another thread than its loop's")
        super().put_nowait(item)


def _stream(impl: Any) -> Any:
    stream = impl.serving.async_engine.Stream()
    stream.updates = Watched()
    return stream


async def begun(impl: Any, served: Any, *works: Work) -> list[Any]:
    """Begin these requests in one job, and return their streams."""

    def begin(engine: Steps) -> None:
        for work, stream in zip(works, streams, strict=True):
            served.begin(engine, lambda work=work: work, stream)

    streams = [_stream(impl) for _ in works]
    await served.call(begin)
    return streams


async def rest_of(stream: Any) -> list[Any]:
    """Wait for a stream's remaining updates, and return them."""
    seen = []
    while not seen or seen[-1][2] is None:
        seen.append(told(await stream.updates.get()))
    return seen


async def answer_to(impl: Any, served: Any, work: Work) -> list[Any]:
    return await rest_of((await begun(impl, served, work))[0])


async def collected(served: Any, work: Work) -> list[Any]:
    return [told(update) async for update in served.generate(lambda: work)]


async def name_of(error: Awaitable[Any]) -> str:
    """Await `error`. Return the name of the error that it raises, or "nothing"."""
    try:
        await error
    except Exception as raised:
        if isinstance(raised, NotImplementedError):
            raise
        return type(raised).__name__
    return "nothing"


# Task 1: updates


async def published(impl: Any, count: int, at: list[int], has_text: bool = True) -> list[Any]:
    """From another thread, publish an update of a request at each of these token counts. Return the updates."""
    stream = _stream(impl)
    stream.request = work = Work("a", count, has_text)
    for number in at:
        while len(work.output) < number:
            work.go_on()
        await asyncio.to_thread(stream.publish)
    return [told(await stream.updates.get()) for _ in at]


async def published_error(impl: Any) -> Any:
    stream = _stream(impl)
    stream.request = work = Work("a")
    work.go_on()
    work.finish("error", ValueError("a sampler that fails"))
    await asyncio.to_thread(stream.publish)
    return told(await stream.updates.get())


async def kept(impl: Any) -> list[Any]:
    """Return the contents of one update twice: before and after its request goes on."""
    stream = _stream(impl)
    stream.request = work = Work("a", 5)
    work.go_on()
    work.go_on()
    await asyncio.to_thread(stream.publish)
    first = await stream.updates.get()
    before = told(first)
    work.go_on()
    return [before, told(first)]


async def busy_loop(impl: Any) -> list[Any]:
    """Publish while the loop is busy. Return whether `publish` waits, and the updates that arrive after that."""
    stream = _stream(impl)
    stream.request = Work("a", 3)

    def three() -> None:
        try:
            for _ in range(3):
                stream.request.go_on()
                stream.publish()
        except Exception as error:
            raised.append(error)

    raised: list[Exception] = []
    thread = threading.Thread(target=three, daemon=True)
    thread.start()
    thread.join(1)
    is_waiting = thread.is_alive()
    for error in raised:
        raise error
    return [is_waiting, await rest_of(stream)]


# Task 1: the engine's loop


async def one_request(impl: Any) -> list[Any]:
    async def body(served: Any) -> list[Any]:
        return await answer_to(impl, served, Work("a"))

    return await _served(impl, Steps(), body)


async def three_requests(impl: Any, turns: bool) -> dict[str, Any]:
    async def body(served: Any) -> dict[str, Any]:
        streams = await begun(impl, served, Work("a", 2), Work("b", 4), Work("c", 3))
        engine.go_on()
        seen = await asyncio.gather(*map(rest_of, streams))
        return dict(zip("abc", seen, strict=True))

    engine = Steps(is_paced=True, turns=turns)
    return await _served(impl, engine, body)


async def where_the_engine_is_used(impl: Any) -> list[Any]:
    """Return how many threads use the engine, and whether the loop's thread is one of them."""

    async def body(served: Any) -> None:
        [stream] = await begun(impl, served, Work("a"))
        await served.call(lambda engine: engine.threads.add(threading.get_ident()))
        await rest_of(stream)

    engine = Steps()
    await _served(impl, engine, body)
    return [len(engine.threads), threading.get_ident() in engine.threads]


async def jobs_during_a_step(impl: Any) -> list[str]:
    """Return the log of an engine if three jobs arrive while it computes a step."""

    def job(number: int) -> Any:
        def note(engine: Steps) -> None:
            engine.log.append(f"job {number}" + (" in a step" if engine.is_in_step else ""))

        return asyncio.ensure_future(served_by[0].call(note))

    async def body(served: Any) -> None:
        served_by.append(served)
        [stream] = await begun(impl, served, Work("a", 3))
        await engine.in_step()
        jobs = [job(number) for number in range(3)]
        await settle()  # lets the jobs arrive
        engine.allow(3)
        await asyncio.gather(rest_of(stream), *jobs)

    served_by: list[Any] = []
    engine = Steps(is_paced=True)
    await _served(impl, engine, body)
    return engine.log


async def answers_of_jobs(impl: Any) -> list[Any]:
    """Return the order of fifty jobs without a step, the error of a job that fails, and the answer of a later job."""

    def fails(engine: Steps) -> None:
        raise ValueError("expected something else")

    async def body(served: Any) -> list[Any]:
        jobs = [served.call(lambda engine, number=number: order.append(number)) for number in range(50)]
        await asyncio.gather(*jobs)
        return [order, await name_of(served.call(fails)), await served.call(lambda engine: "well")]

    order: list[int] = []
    return await _served(impl, Steps(), body)


async def sleeps_without_work(impl: Any) -> bool:
    """Tell whether the engine's thread sleeps when a request has ended and no job arrives."""

    async def body(served: Any) -> bool:
        await answer_to(impl, served, Work("a"))
        return await served._jobs.rest(served)

    return await _served(impl, Steps(), body)


async def after_a_pause(impl: Any) -> list[Any]:
    async def body(served: Any) -> list[Any]:
        await served._jobs.rest(served)
        first = await answer_to(impl, served, Work("a", 1))
        await served._jobs.rest(served)
        return [first, await answer_to(impl, served, Work("b", 1))]

    return await _served(impl, Steps(), body)


async def failing_step(impl: Any, kind: str = "RuntimeError") -> list[Any]:
    """Return the last updates of two requests whose step raises this error, and the last update of a later request."""

    async def body(served: Any) -> list[Any]:
        streams = await begun(impl, served, Work("a"), Work("b"))
        await engine.in_step()
        engine.error = vars(builtins)[kind]("no memory")
        engine.go_on()
        seen = [(await rest_of(stream))[-1] for stream in streams]
        return [*seen, (await answer_to(impl, served, Work("c")))[-1]]

    engine = Steps(is_paced=True)
    return await _served(impl, engine, body)


async def stopped_with_work(impl: Any, steps: int = 4) -> list[Any]:
    """Call `stop` in the first step of a request that takes `steps` steps. Return the request's updates, and the answer
    of a later job."""

    async def body(served: Any) -> list[Any]:
        [stream] = await begun(impl, served, Work("a", steps))
        await engine.in_step()
        stopping = asyncio.ensure_future(served.stop())
        await settle()
        job = asyncio.ensure_future(served.call(lambda engine: "done"))
        await settle()
        engine.go_on()
        seen = await rest_of(stream)
        await stopping
        return [seen, await job]

    engine = Steps(is_paced=True)
    return await _served(impl, engine, body)


async def stopped_too_late(impl: Any) -> Any:
    """Return the finish reason and the error of a request that is not done in the time that `stop` allows."""

    async def body(served: Any) -> Any:
        [stream] = await begun(impl, served, Work("a", 10**9))
        await engine.in_step()
        stopping = asyncio.ensure_future(served.stop(0))
        await settle()
        engine.allow(3)
        await stopping
        return (await rest_of(stream))[-1][2:]

    engine = Steps(is_paced=True)
    return await _served(impl, engine, body)


# Task 2: requests that come and go


async def generated(impl: Any) -> list[Any]:
    async def body(served: Any) -> list[Any]:
        return await collected(served, Work("a"))

    return await _served(impl, Steps(), body)


async def as_they_come(impl: Any) -> list[list[int]]:
    """For each update, return its tokens and how many steps had been allowed when it was awaited."""

    async def body(served: Any) -> list[list[int]]:
        updates, seen = served.generate(lambda: Work("a", 3)), []
        for steps in (1, 2, 3):
            engine.allow()
            seen.append([*(await updates.__anext__()).tokens, steps])
        await updates.aclose()
        return seen

    engine = Steps(is_paced=True)
    return await _served(impl, engine, body)


async def many(impl: Any) -> list[list[int]]:
    """Return the tokens of twenty simultaneous requests of 1 to 20 tokens."""

    async def body(served: Any) -> list[list[int]]:
        found = await asyncio.gather(*(collected(served, Work(str(count), count)) for count in range(1, 21)))
        return [[token for update in updates for token in update[0]] for updates in found]

    return await _served(impl, Steps(), body)


async def made_in(impl: Any) -> bool:
    """Tell whether requests are made in the engine's thread."""

    async def body(served: Any) -> bool:
        def make() -> Work:
            threads.append(threading.get_ident())
            return Work("a", 1)

        await _all(served.generate(make))
        return threads == [await served.call(lambda engine: threading.get_ident())]

    threads: list[int] = []
    return await _served(impl, Steps(), body)


async def _all(updates: AsyncGenerator[Any, None]) -> None:
    async for _ in updates:
        pass


async def open_for(impl: Any, max_requests: int, running: int, count: int | None, is_stopped: bool) -> str:
    """Call `check_open` for `count` more requests while `running` others run. Return "open" or the error's name."""

    async def body(served: Any) -> str:
        updates = [served.generate(lambda number=number: Work(str(number), 10**9)) for number in range(running)]
        for each in updates:
            await each.__anext__()
        if is_stopped:
            stopping = asyncio.ensure_future(served.stop())
            await settle(1)
        try:
            served.check_open() if count is None else served.check_open(count)
            return "open"
        except (impl.serving.async_engine.QueueFullError, impl.serving.async_engine.EngineStoppedError) as error:
            return type(error).__name__
        finally:
            for each in updates:
                await each.aclose()
            if is_stopped:
                await stopping

    return await _served(impl, Steps(), body, max_requests)


async def open_when_broken(impl: Any) -> str:
    """Return the name of the error of `check_open` after the engine's thread has failed."""
    served = impl.serving.async_engine.AsyncEngine(Steps)
    served.error = RuntimeError("no such thing")
    try:
        served.check_open()
    except impl.serving.async_engine.EngineStoppedError as error:
        return type(error).__name__
    return "open"


async def refused_again(impl: Any) -> list[Any]:
    """Return the names of the errors of two requests that arrive while the only allowed request runs, and then
    `num_requests`."""

    async def body(served: Any) -> list[Any]:
        running = served.generate(lambda: Work("a", 10**9))
        await running.__anext__()
        seen = [await name_of(collected(served, Work(id))) for id in "bc"]
        seen.append(served.num_requests)
        await running.aclose()
        return seen

    return await _served(impl, Steps(), body, 1)


async def refused(impl: Any) -> list[Any]:
    """Start two requests where one is allowed. Return the second one's error, whether it was made, its entries in the
    engine's log, and the last update of a third request, which starts when the first has ended."""

    async def body(served: Any) -> list[Any]:
        def make() -> Work:
            made.append("b")
            return Work("b")

        first = asyncio.ensure_future(collected(served, Work("a")))
        await settle(1)
        second = await name_of(_all(served.generate(make)))
        engine.go_on()
        await first
        return [second, made, [line for line in engine.log if "b" in line], (await collected(served, Work("c")))[-1]]

    made: list[str] = []
    engine = Steps(is_paced=True)
    return await _served(impl, engine, body, 1)


async def counted(impl: Any) -> list[int]:
    """Return `num_requests` before any request, while two requests run, after one is closed, after the engine has
    refused one, and after all are closed."""

    async def body(served: Any) -> list[int]:
        seen = [served.num_requests]
        running = [served.generate(lambda id=id: Work(id, 10**9)) for id in "ab"]
        for updates in running:
            await updates.__anext__()
        seen.append(served.num_requests)
        await running[0].aclose()
        seen.append(served.num_requests)
        await name_of(collected(served, Work("c", 0)))
        seen.append(served.num_requests)
        await running[1].aclose()
        return [*seen, served.num_requests]

    return await _served(impl, Steps(), body)


async def refused_by_the_engine(impl: Any) -> list[Any]:
    """Return two errors: of a request that cannot be made, and of one that is refused. Also return the open streams."""

    async def body(served: Any) -> list[Any]:
        def make() -> Work:
            raise ValueError("expected another prompt")

        seen = [await name_of(_all(served.generate(make))), await name_of(collected(served, Work("a", 0)))]
        return [*seen, await served.call(lambda engine: list(served._streams))]

    return await _served(impl, Steps(), body)


async def left(impl: Any, how: str) -> list[Any]:
    """Let a client leave after the first update. Return its request's entries in the log, and the open streams."""

    async def body(served: Any) -> list[Any]:
        updates = served.generate(lambda: Work("a", 10**9))
        other = asyncio.ensure_future(collected(served, Work("b", 30)))
        await updates.__anext__()
        if how == "closed":
            await updates.aclose()
        else:
            waiting = asyncio.ensure_future(_all(updates))
            await settle(1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            if not waiting.cancelled():
                return ["the coroutine goes on although it was cancelled"]
        whole = await other
        return [*await served.call(lambda engine: [_of("a", engine), list(served._streams)]), len(whole[-1])]

    return await _served(impl, Steps(), body)


def _of(id: str, engine: Steps) -> list[str]:
    return [line for line in engine.log if line.endswith(f" {id}")]


async def left_before_it_began(impl: Any) -> list[Any]:
    """Cancel a client whose request waits for the end of a step. Return the engine's requests and the open streams."""

    async def body(served: Any) -> list[Any]:
        first = asyncio.ensure_future(collected(served, Work("a", 5)))
        await engine.in_step()
        second = asyncio.ensure_future(collected(served, Work("b", 10**9)))
        await settle()
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        engine.go_on()
        await first
        return await served.call(lambda engine: [list(engine.works), list(served._streams), served.num_requests])

    engine = Steps(is_paced=True)
    return await _served(impl, engine, body)


async def closed_during_a_step(impl: Any) -> list[Any]:
    """Return whether a client that leaves has to wait for the end of a step, and its request's entries in the log."""

    async def body(served: Any) -> list[Any]:
        updates = served.generate(lambda: Work("a", 10**9))
        engine.allow()
        await updates.__anext__()
        await engine.in_step()
        closing = asyncio.ensure_future(updates.aclose())
        await settle()
        waits = not closing.done()
        engine.go_on()
        await closing
        return [waits, await served.call(lambda engine: _of("a", engine))]

    engine = Steps(is_paced=True)
    return await _served(impl, engine, body)


async def after_the_end(impl: Any) -> list[Any]:
    """Return the open streams and a request's entries in the log after the request has ended by itself."""

    async def body(served: Any) -> list[Any]:
        await collected(served, Work("a"))
        return await served.call(lambda engine: [list(served._streams), _of("a", engine)])

    return await _served(impl, Steps(), body)


async def failed_request(impl: Any) -> list[Any]:
    """Return the updates of a request whose step fails."""

    async def body(served: Any) -> list[Any]:
        waiting = asyncio.ensure_future(collected(served, Work("a")))
        await engine.in_step()
        engine.error = RuntimeError("no memory")
        engine.go_on()
        return await waiting

    engine = Steps(is_paced=True)
    return await _served(impl, engine, body)


async def stopped(impl: Any) -> list[Any]:
    """Return the finish reason of a request that `stop` cuts off, and the error of a request after `stop`."""

    async def body(served: Any) -> list[Any]:
        waiting = asyncio.ensure_future(collected(served, Work("a", 10**9)))
        await engine.in_step()
        stopping = asyncio.ensure_future(served.stop(0))
        await settle()
        engine.allow(3)
        await stopping
        return [(await waiting)[-1][2], await name_of(collected(served, Work("b")))]

    engine = Steps(is_paced=True)
    return await _served(impl, engine, body)


# Tasks 3 and 4: a client


class Client:
    """The client of an ASGI application.

    messages: the types of the messages that the client sends before it waits. sent: the messages that it has accepted.
    log: these messages and other events, in order. takes: how many messages it accepts until `takes_all` is set.
    """

    def __init__(self, *messages: str, takes: float = math.inf):
        self.sent: list[dict[str, Any]] = []
        self.log: list[str] = []
        self.left = asyncio.Event()
        self.takes_all = asyncio.Event()
        self._messages = [f"http.{message}" for message in messages]
        self._takes = takes
        self._offers, self._offer = 0, asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._messages:
            return {"type": self._messages.pop(0), "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def offered(self, count: int) -> None:
        """Wait until `send` has been called this many times."""
        while self._offers < count:
            await self._offer.wait()
            self._offer.clear()

    async def send(self, message: dict[str, Any]) -> None:
        self._offers += 1
        self._offer.set()
        if len(self.sent) >= self._takes:
            await self.takes_all.wait()
        self.sent.append(dict(message))
        self.log.append(f"sent {message['type']}")

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()


def open_tasks() -> set[Any]:
    return {task for task in asyncio.all_tasks() if not task.done()}


async def ended(
    impl: Any, client: Client, timeout: float | None, turns: int | None, error: BaseException | None = None
) -> list[Any]:
    """Await work in `until_gone`. Return the result, the client's log, and how many tasks are left.

    For an ApiError, the result includes the response's body as lists, because grading passes on no nested dicts. turns:
    how many turns of the loop the work takes; None: it never ends by itself. error: what it raises at its end.
    """

    async def work() -> str:
        try:
            await (settle(turns) if turns is not None else asyncio.Event().wait())
            if error is not None:
                raise error
            return "done"
        except asyncio.CancelledError:
            await settle(20)  # the work cleans up
            raise
        finally:
            client.log.append("work ended")

    before = open_tasks()
    try:
        came: Any = await impl.serving.event_stream.until_gone(client.receive, work(), timeout)
    except NotImplementedError:
        raise
    except Exception as raised:
        came = f"{type(raised).__name__} {getattr(raised, 'status', '') or raised}".strip()
        if hasattr(raised, "body"):
            came = [came, *([name, value] for name, value in sorted(raised.body["error"].items()))]
    return [came, list(client.log), len(open_tasks() - before)]


async def work_that_ends(impl: Any) -> list[Any]:
    return await ended(impl, Client(), None, 1)


async def work_that_takes_a_while(impl: Any, timeout: float | None) -> list[Any]:
    return await ended(impl, Client(), timeout, 100)


async def work_that_fails(impl: Any) -> list[Any]:
    return await ended(impl, Client(), 5, 100, ValueError("expected something else"))


async def work_that_was_too_slow_itself(impl: Any, timeout: float | None) -> list[Any]:
    return await ended(impl, Client(), timeout, 100, asyncio.TimeoutError("no answer from the disk"))


async def work_that_was_cancelled(impl: Any) -> str:
    """Return the name of what `until_gone` raises if nobody cancels it, but the work raises a CancelledError."""
    waiting = asyncio.ensure_future(ended(impl, Client(), None, 1, asyncio.CancelledError()))
    (found,) = await asyncio.gather(waiting, return_exceptions=True)
    if isinstance(found, NotImplementedError):
        raise found
    return type(found).__name__


async def client_that_left_before(impl: Any) -> list[Any]:
    return await ended(impl, Client("request", "disconnect"), None, None)


async def leaving(client: Client, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine whose client leaves while the coroutine waits."""
    waiting = asyncio.ensure_future(coroutine)
    await settle()
    client.left.set()
    return await waiting


async def client_that_leaves(impl: Any, timeout: float | None) -> list[Any]:
    client = Client("request")
    return await leaving(client, ended(impl, client, timeout, None))


async def client_that_goes_on_sending(impl: Any) -> list[Any]:
    return await ended(impl, Client(*["request"] * 20), None, 100)


async def time_that_is_over_for_a_client_that_sends(impl: Any) -> list[Any]:
    """Let a client send messages at far shorter intervals than the time limit, and leave after the last message."""

    async def receive() -> dict[str, Any]:
        await pass_time(0.02)
        return await Client.receive(client)

    client = Client(*["request"] * 25)
    client.left.set()
    client.receive = receive  # type: ignore[method-assign]
    return await ended(impl, client, 0.1, None)


async def time_that_is_over(impl: Any, timeout: float = 0.02) -> list[Any]:
    return await ended(impl, Client(), timeout, None)


async def cancelled(client: Client, coroutine: Coroutine[Any, Any, Any]) -> list[Any]:
    """Cancel a waiting coroutine. Return the name of what it raises, the client's log, and how many tasks are left."""
    before = open_tasks()
    waiting = asyncio.ensure_future(coroutine)
    await settle()
    waiting.cancel()
    found = (await asyncio.gather(waiting, return_exceptions=True))[0]
    if isinstance(found, NotImplementedError):
        raise found
    return [type(found).__name__, list(client.log), len(open_tasks() - before)]


async def waits_for_too_long(impl: Any) -> list[Any]:
    """Cancel `until_gone` while it waits."""
    client = Client()
    return await cancelled(client, ended(impl, client, None, None))


async def client_that_leaves_at_the_end(impl: Any) -> list[Any]:
    """Finish the work at the moment when the client leaves."""
    client, before = Client(), open_tasks()
    done = asyncio.get_running_loop().create_future()

    async def work() -> str:
        return str(await done)

    waiting = asyncio.ensure_future(impl.serving.event_stream.until_gone(client.receive, work(), None))
    await settle()
    done.set_result("done")
    client.left.set()
    return [await waiting, len(open_tasks() - before)]


# Task 4


async def encoded(impl: Any, event: str) -> str:
    return impl.serving.event_stream.EventStream.encode(event).decode()


async def events_of(client: Client, *steps: Any) -> AsyncGenerator[str, None]:
    """Yield the steps that are strings, as events. Wait this many turns of the loop for an int, and this many seconds
    for a float. Await an asyncio.Event, and raise an error."""
    try:
        for step in steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, int):
                await settle(step)
            elif isinstance(step, float):
                await pass_time(step)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            else:
                client.log.append(f"asked for {step}")
                yield step
    finally:
        client.log.append("events closed")


async def answered(impl: Any, client: Client, *steps: Any, timeout: float | None = None) -> dict[str, Any]:
    """Stream events to a client. Return what the client has accepted, its log, what is raised, and the tasks left."""
    before = open_tasks()
    events = impl.serving.event_stream.EventStream(events_of(client, *steps), timeout)
    raised = "nothing"
    try:
        await events({"type": "http"}, client.receive, client.send)
    except NotImplementedError:
        raise
    except Exception as error:
        raised = f"{type(error).__name__} {getattr(error, 'status', '') or error}".strip()
    starts = [message for message in client.sent if message["type"] == "http.response.start"]
    return {
        "raised": raised,
        "log": list(client.log),  # a copy, because Python may close a generator later and extend the log
        "status": [message["status"] for message in starts],
        "headers": [[name.decode().lower(), value.decode()] for start in starts for name, value in start["headers"]],
        "bodies": [message["body"].decode() for message in client.sent if "body" in message],
        "more": [message.get("more_body", False) for message in client.sent if "body" in message],
        "tasks": len(open_tasks() - before),
    }


def api_error(impl: Any, status: int = 429) -> Exception:
    return impl.given.serving.api_error.ApiError(status, "expected fewer", code="some_code")


async def some_events(impl: Any, *events: str) -> dict[str, Any]:
    return await answered(impl, Client("request"), *events)


async def events_while_they_come(impl: Any) -> list[str]:
    """Return the client's text while the second event is awaited, and its text in the end."""
    client, comes = Client("request"), asyncio.Event()
    waiting = asyncio.ensure_future(answered(impl, client, "one", comes, "two"))
    await settle()
    text = client.text
    comes.set()
    await waiting
    return [text, client.text]


async def error_before(impl: Any) -> dict[str, Any]:
    return await answered(impl, Client("request"), 100, api_error(impl), "one")


async def error_after(impl: Any) -> dict[str, Any]:
    return await answered(impl, Client("request"), "one", "two", api_error(impl), "three")


async def mistake_in_the_events(impl: Any) -> dict[str, Any]:
    return await answered(impl, Client("request"), "one", KeyError("no such thing"))


async def time_over(impl: Any, *before: str) -> dict[str, Any]:
    return await answered(impl, Client("request"), *before, asyncio.Event(), "never", timeout=0.1)


async def time_over_although_events_come(impl: Any) -> dict[str, Any]:
    """Send events at far shorter intervals than the time limit, but for a far longer time in all."""
    steps = [step for number in range(25) for step in (str(number), 0.02)]
    return await answered(impl, Client("request"), *steps, timeout=0.1)


async def time_enough(impl: Any) -> dict[str, Any]:
    return await answered(impl, Client("request"), "one", 100, "two", timeout=20)


async def reader_that_leaves(impl: Any) -> dict[str, Any]:
    client = Client("request")
    return await leaving(client, answered(impl, client, "one", asyncio.Event(), "never"))


async def reader_that_was_never_there(impl: Any) -> dict[str, Any]:
    return await answered(impl, Client("disconnect"), asyncio.Event(), "never")


async def slow_reader(impl: Any) -> list[Any]:
    """Return which events were requested while the client had taken no message yet, and which events arrived in the
    end."""
    client = Client("request", takes=0)
    waiting = asyncio.ensure_future(answered(impl, client, "one", "two", "three"))
    await settle()
    asked = [line for line in client.log if line.startswith("asked")]
    client.takes_all.set()
    return [asked, (await waiting)["bodies"]]


async def slow_reader_that_leaves(impl: Any) -> dict[str, Any]:
    client = Client("request", takes=0)
    return await leaving(client, answered(impl, client, "one", "two"))


async def slow_reader_out_of_time(impl: Any) -> list[Any]:
    """Let the time limit end for a client that has taken only the first event. Return the log at the time when the last
    message is offered, and all that has arrived after the client takes messages again."""
    client = Client("request", takes=2)
    waiting = asyncio.ensure_future(answered(impl, client, "one", "two", timeout=0.1))
    last = asyncio.ensure_future(client.offered(4))  # the message after the start and two events
    await asyncio.wait([waiting, last], return_when=asyncio.FIRST_COMPLETED)
    last.cancel()
    log = list(client.log)
    client.takes_all.set()
    return [log, await waiting]


async def time_over_at_the_start(impl: Any) -> dict[str, Any]:
    """Let the time limit end while the start of the response is offered to a client that takes nothing. When another
    message is offered, the client takes all messages."""
    client = Client("request", takes=0)
    waiting = asyncio.ensure_future(answered(impl, client, "one", timeout=0.1))
    second = asyncio.ensure_future(client.offered(2))
    await asyncio.wait([waiting, second], return_when=asyncio.FIRST_COMPLETED)
    second.cancel()
    client.takes_all.set()
    return await waiting


async def events_left_in_the_middle(impl: Any, how: str) -> list[str]:
    """Cancel a response while it sends a message, or let `send` fail. Return the log until the response ended."""

    async def send(message: dict[str, Any]) -> None:
        if how == "send fails":
            raise ConnectionResetError("no connection")
        await client.send(message)

    client = Client("request", takes=0)
    events = events_of(client, "one", "two")  # a reference, because Python closes an unreferenced generator
    response = impl.serving.event_stream.EventStream(events)({"type": "http"}, client.receive, send)
    await (name_of(response) if how == "send fails" else cancelled(client, response))
    return list(client.log)


async def cancelled_reader(impl: Any) -> list[Any]:
    """Cancel a response while it waits for an event, as when the server ends."""
    client = Client("request")
    return await cancelled(client, answered(impl, client, "one", asyncio.Event()))


# ---------------------------------------------------------------------------------------------- the cache of week 2


async def memory_of_a_token(impl: Any) -> dict[str, Any]:
    """Store two more tokens in a layer whose arrays have room. Return how many bytes this takes, how many bytes one
    array has, and the first stored value of each token."""
    layer = impl.kv_cache.KVCacheLayer(step=8192)
    prompt, new = mx.zeros((1, 1, 5, 32)), mx.arange(1.0, 3.0)[:, None] + mx.zeros((1, 1, 2, 32))
    layer.store(prompt, prompt + 1)
    layer.offset += 5
    mx.eval(layer.keys, layer.values, new)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    layer.store(new, new)
    mx.eval(layer.keys, layer.values)
    used = mx.get_peak_memory() - before
    return {"bytes": used, "size": layer.keys.nbytes, "stored": layer.keys[0, 0, 5:7, 0].tolist()}
