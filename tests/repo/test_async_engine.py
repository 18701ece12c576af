"""The engine's thread: its updates, clients that leave, failures, and how the thread ends."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import scenes
from hangs import HangError
from scenes import Jobs, settle
from test_serving import Letters, Moody, pages, small_model

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.diagnosis.mutants import mutant_package
from tiny_llm_course.diagnosis.package_under_test import REFERENCE, Package
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_ref.generate import generate
from tiny_llm_ref.kv_cache import KVCache
from tiny_llm_ref.sampler import make_sampler
from tiny_llm_ref.serving import async_engine
from tiny_llm_ref.serving.async_engine import AsyncEngine, EngineStoppedError, QueueFullError, Update, _join
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.metrics import Metrics
from tiny_llm_ref.serving.request import Request, SamplingParams, TextStream
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget

PROMPT = [3, 1, 4, 1, 5]


def make_engine(model: Any = None, observers: Sequence[Any] = ()) -> Engine:
    model = small_model() if model is None else model
    return Engine(model, Scheduler(pages(2, 60, 4), 3, TokenBudget(8), PreemptNewest()), observers, is_checked=True)


def make_request(id: str = "a", count: int = 12, prompt: list[int] = PROMPT) -> Callable[[], Request]:
    return lambda: Request(id, prompt, SamplingParams(count, ignore_eos=True), TextStream(Letters()))


def alone(count: int = 12) -> list[int]:
    model = small_model()
    return list(generate(model, PROMPT, make_sampler(0.0), count, (), KVCache(len(model.layers))))


def served(test: Callable[[AsyncEngine], Awaitable[None]], **options: Any) -> None:
    """Run a test with an engine that starts before the test and stops after it."""

    async def whole() -> None:
        engine = AsyncEngine(options.pop("make_engine", make_engine), **options)
        engine._jobs = Jobs()
        await engine.start()
        try:
            await test(engine)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))


async def collected(engine: AsyncEngine, request: Callable[[], Request]) -> list[Update]:
    return [update async for update in engine.generate(request)]


async def is_empty(engine: AsyncEngine) -> bool:
    """Tell whether no request is being served, and no page is held."""

    def look(engine: Engine) -> bool:
        pool = engine.scheduler.cache.pool  # type: ignore[attr-defined]
        return not engine.has_work and pool.num_free == pool.num_pages

    return await engine.call(look) and not engine._streams


def test_what_comes() -> None:
    async def test(engine: AsyncEngine) -> None:
        found = await asyncio.gather(*(collected(engine, make_request(str(i), 6 + i)) for i in range(5)))
        for i, updates in enumerate(found):
            tokens = [token for update in updates for token in update.tokens]
            assert tokens == alone(6 + i)
            assert "".join(update.text for update in updates) == Letters().decode(tokens, True)
            assert [update.finish_reason for update in updates] == [None] * (len(updates) - 1) + ["length"]
            assert len(updates) > 4
        assert await is_empty(engine)

    served(test)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_who_stops_listening_is_not_served_any_more(is_cancelled: bool) -> None:
    async def test(engine: AsyncEngine) -> None:
        async def listen() -> None:
            async with aclosing(engine.generate(make_request("a", 200))) as updates:
                async for update in updates:
                    if update.tokens:
                        seen.set()
                        if not is_cancelled:
                            return

        seen = asyncio.Event()
        task = asyncio.ensure_future(listen())
        other = asyncio.ensure_future(collected(engine, make_request("b")))
        await seen.wait()
        if is_cancelled:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert [token for update in await other for token in update.tokens] == alone()
        assert await is_empty(engine)
        assert engine.num_requests == 0

    served(test)


def test_refused() -> None:
    async def test(engine: AsyncEngine) -> None:
        with pytest.raises(ValueError, match="expected token ids"):
            await collected(engine, make_request("a", prompt=[1000]))
        with pytest.raises(ValueError, match="expected at least one token"):
            await collected(engine, make_request("b", prompt=[]))
        first = asyncio.ensure_future(collected(engine, make_request("c", 100)))
        second = asyncio.ensure_future(collected(engine, make_request("d", 100)))
        await settle(1)
        with pytest.raises(QueueFullError, match="expected 2 requests at the same time at most, got 3"):
            await collected(engine, make_request("e"))
        await asyncio.gather(first, second)
        assert await collected(engine, make_request("f"))

    served(test, max_requests=2)


def test_a_step_that_fails() -> None:
    """A step that fails ends all requests that are being served, and no others."""
    moody = Moody(small_model())

    async def test(engine: AsyncEngine) -> None:
        tasks = [asyncio.ensure_future(collected(engine, make_request(str(i), 100))) for i in range(2)]
        await settle(1)
        await engine.call(lambda engine: setattr(moody, "fails", True))  # both have begun, and neither has finished
        for updates in await asyncio.gather(*tasks):
            assert updates[-1].finish_reason == "error"
            assert updates[-1].error is not None
        tokens = [token for update in await collected(engine, make_request()) for token in update.tokens]
        assert tokens == alone()
        assert await is_empty(engine)

    served(test, make_engine=lambda: make_engine(moody))


def test_how_requests_of_a_failed_step_are_counted() -> None:
    """They count as errors. An aborted request still counts as aborted, and a finished one as finished."""
    moody, metrics = Moody(small_model()), Metrics()

    def arrived(id: str, count: int) -> Callable[[], Request]:
        def make() -> Request:
            request = make_request(id, count)()
            metrics.arrive(request)
            return request

        return make

    async def test(engine: AsyncEngine) -> None:
        tasks = [asyncio.ensure_future(collected(engine, arrived(str(i), 100))) for i in range(2)]
        await settle(1)
        await engine.call(lambda engine: setattr(moody, "fails", True))
        await asyncio.gather(*tasks)
        await collected(engine, arrived("whole", 3))
        async with aclosing(engine.generate(arrived("left", 100))) as updates:
            await anext(updates)
        assert await is_empty(engine)

    served(test, make_engine=lambda: make_engine(moody, [metrics]))
    lines = [line.split(" ") for line in metrics.text().decode().splitlines() if "requests_total{" in line]
    reasons = {re.findall(r'"(.+)"', name)[0]: float(count) for name, count in lines}
    assert reasons == {"stop": 0, "length": 1, "abort": 1, "error": 2}  # counters begin at 0


def test_the_end() -> None:
    async def test() -> None:
        engine = AsyncEngine(make_engine)
        await engine.start()
        task = asyncio.ensure_future(collected(engine, make_request("a", 60)))
        await settle(1)
        await engine.stop()
        assert [token for update in await task for token in update.tokens] == alone(60)
        with pytest.raises(EngineStoppedError):
            await collected(engine, make_request("b"))
        await engine.stop()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_the_end_of_those_who_take_too_long() -> None:
    """The time limit is reached while the model computes."""

    async def test() -> None:
        class Slow(Moody):
            def hidden(self, tokens: Any, cache: Any) -> Any:
                loop.call_soon_threadsafe(has_begun.set)
                may_go_on.wait(60)
                return super().hidden(tokens, cache)

        loop, has_begun, may_go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        engine = AsyncEngine(lambda: make_engine(Slow(small_model())))
        await engine.start()
        task = asyncio.ensure_future(collected(engine, make_request("a", 200)))
        await has_begun.wait()
        stopping = asyncio.ensure_future(engine.stop(timeout=0))
        await settle()
        may_go_on.set()
        await stopping
        updates = await task
        assert updates[-1].finish_reason == "abort"
        assert len(updates) < 5

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_start_that_is_cancelled() -> None:
    """A Ctrl-C while a model is loaded cancels the start. The thread must have ended, or Python aborts the process."""

    async def test() -> None:
        def make() -> Engine:
            loop.call_soon_threadsafe(has_begun.set)
            may_go_on.wait(60)
            return make_engine()

        loop, has_begun, may_go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        engine = AsyncEngine(make)
        starting = asyncio.ensure_future(engine.start())
        await has_begun.wait()
        starting.cancel()
        await settle()
        is_waiting = not starting.done()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert is_waiting
        assert engine._thread is not None
        assert not engine._thread.is_alive()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_an_engine_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread has ended when `start` raises: Python aborts a process that exits while the thread is still ending.

    Here the thread ends only after another thread has begun to join it, so the test cannot pass by chance.
    """

    def fail() -> Engine:
        raise OSError("no weights")

    class Slow(AsyncEngine):
        def _run(self, made: Any) -> None:
            super()._run(made)
            is_joined.wait(60)

    def join(thread: threading.Thread) -> None:
        is_joined.set()
        _join(thread)

    async def test() -> None:
        engine = Slow(fail)
        with pytest.raises(OSError, match="no weights"):
            await engine.start()
        assert not engine._thread.is_alive()  # type: ignore[union-attr]
        assert not Path(f"/proc/self/task/{engine._thread.native_id}").exists()  # type: ignore[union-attr]
        assert engine.is_stopping
        await engine.stop()

    is_joined = threading.Event()
    monkeypatch.setattr(async_engine, "_join", join)
    asyncio.run(asyncio.wait_for(test(), 60))


def test_jobs_and_rest() -> None:
    """Jobs return a result or raise an error, and a coroutine that waits for a job uses no processor time."""

    async def test(engine: AsyncEngine) -> None:
        assert await engine.call(lambda engine: engine.max_length) > 0
        with pytest.raises(ZeroDivisionError):
            await engine.call(lambda engine: 1 // 0)
        assert await engine._jobs.rest(engine)  # type: ignore[attr-defined]

    served(test)


def test_a_loop_that_breaks_leaves_nobody_waiting() -> None:
    class Broken(AsyncEngine):
        def publish(self, request: Request) -> None:
            raise RuntimeError("not my day")

    async def test() -> None:
        engine = Broken(make_engine)
        await engine.start()
        found = await asyncio.gather(*(collected(engine, make_request(str(i))) for i in range(3)))
        assert [str(updates[-1].error) for updates in found] == ["not my day"] * 3
        await engine.broken.wait()
        assert str(engine.error) == "not my day"
        assert await engine.call(lambda engine: engine.max_length) > 0
        with pytest.raises(EngineStoppedError):
            await collected(engine, make_request("b"))
        await engine.stop()

    asyncio.run(asyncio.wait_for(test(), 60))


# ------------------------------------------------------------------------------------------- messages about hangs

given_up = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # an engine's thread
HANGS = {  # a mistake, the scene that it does not end, its arguments, and the message
    "drained-with-a-blocking-get": (
        scenes.one_request,
        (),
        r"`serve` \(\S+:\d+\) waits for ever: nothing put a job into the queue",
    ),
    "waits-for-the-abort": (
        scenes.left_before_it_began,
        (),
        r"`generate` \(\S+:\d+\) > `call` \(\S+:\d+\) waits for ever: the engine's thread has not done the job",
    ),
    "served-for-nobody": (
        scenes.open_for,
        (3, 2, None, False),
        r"the engine has made 200 steps, and still serves '0', '1'\n`stop` \(\S+:\d+\) waits for ever",
    ),
    "end-not-told": (scenes.one_request, (), "\nthe test waits for ever: nothing put an update into the queue"),
}


@pytest.mark.parametrize("name", HANGS)
@given_up
def test_a_hang_says_who_waits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hang is found without a clock: no test waits for a patience of 1000 seconds."""
    monkeypatch.setattr(scenes, "PATIENCE", 1000.0)
    monkeypatch.setattr(scenes, "_hung", [])
    scene, arguments, message = HANGS[name]
    tasks = [TaskId.parse("w3d7.1"), TaskId.parse("w3d7.2")]
    ((task, mistake),) = [(task, each) for task in tasks for each in entry_of(task).mistakes if each.id == name]
    with pytest.raises(HangError, match=message):
        scenes.play(Package(mutant_package(REFERENCE, task, mistake)), scene, *arguments)


def test_a_blocked_loop_is_told_to_await(monkeypatch: pytest.MonkeyPatch) -> None:
    async def blocked(impl: Any) -> None:
        over.wait()

    over = threading.Event()
    monkeypatch.setattr(scenes, "PATIENCE", 0.1)
    monkeypatch.setattr(scenes, "_hung", [])
    with pytest.raises(HangError, match=r"has blocked the event loop for .* s: wait with `await`"):
        scenes.play(Package(REFERENCE.name), blocked)
    over.set()
