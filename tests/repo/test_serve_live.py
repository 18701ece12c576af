"""The data of the server's page: the speed of an engine that works, that is slow, or that has no work."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest
from test_serving import pages, small_model

from tiny_llm_course.serve.dashboard import INTERVAL, WINDOW, Dashboard
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.metrics import Metrics
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget


class Watched:
    """An engine with a clock that stops between two steps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.live, self.metrics = Dashboard(clock=lambda: self.now), Metrics(clock=lambda: self.now)
        self.live.ended = self.metrics.ended
        scheduler = Scheduler(pages(2, 60, 4), 3, TokenBudget(8), PreemptNewest())
        self.engine = Engine(small_model(), scheduler, [self.metrics, self.live], is_checked=True)

    def add(self, id: str, count: int) -> None:
        request = Request(id, [3, 1, 4, 1, 5], SamplingParams(count, ignore_eos=True))
        self.engine.add(request)
        self.metrics.arrive(request)

    def step(self, seconds: float, count: int = 1) -> None:
        """Run `count` steps, each of which takes `seconds`."""
        for _ in range(count):
            self.now += seconds
            self.engine.step()

    @property
    def rate(self) -> float:
        rate = self.live.look(self.engine)["rate"]
        assert isinstance(rate, float)
        return rate


@pytest.mark.parametrize("seconds", [0.125, 0.5, 4.0])
def test_a_token_in_each_step(seconds: float) -> None:
    """The rate is right however long a step takes."""
    watched = Watched()
    assert watched.rate == 0
    watched.add("a", 40)
    watched.step(seconds, 20)
    assert watched.rate == round(1 / seconds, 1)
    watched.add("b", 40)
    watched.step(seconds, 1 + int(WINDOW / seconds) + 1)
    assert watched.rate == round(2 / seconds, 1)


@pytest.mark.parametrize("is_aborted", [False, True])
def test_an_engine_without_work_falls_to_0(is_aborted: bool) -> None:
    watched = Watched()
    watched.add("a", 20)
    watched.step(0.125, 10 if is_aborted else 20)
    assert watched.engine.has_work == is_aborted
    if is_aborted:
        watched.engine.abort("a")
    watched.now += WINDOW / 2
    assert 0 < watched.rate < 8
    watched.now += WINDOW / 2
    assert watched.rate == 0


def test_an_hour_without_work_is_no_slow_step() -> None:
    watched = Watched()
    watched.add("a", 20)
    watched.step(0.125, 20)
    watched.now += 3600
    watched.add("b", 20)
    watched.step(0.125, 3)
    assert watched.rate == 8


def test_requests_that_are_over() -> None:
    """The list has the last eight requests, the newest first."""
    watched = Watched()
    watched.add("a", 3)
    watched.now += 2
    watched.step(0.5, 3)
    watched.add("b", 20)
    watched.step(0.25, 2)
    watched.engine.abort("b")
    watched.add("c", 9)
    watched.engine.abort("c")
    assert watched.live.look(watched.engine)["finished"] == [
        {"id": "c", "prompt": 5, "output": 0, "reason": "abort", "first": None, "rate": None},
        {"id": "b", "prompt": 5, "output": 2, "reason": "abort", "first": 0.25, "rate": 4.0},
        {"id": "a", "prompt": 5, "output": 3, "reason": "length", "first": 2.5, "rate": 2.0},
    ]
    for number in range(9):
        watched.add(str(number), 1)
        watched.step(1)
    finished = watched.live.look(watched.engine)["finished"]
    assert [request["id"] for request in finished] == [*"87654321"]
    assert [request["rate"] for request in finished] == [None] * 8


class Counted:
    """A stand-in for an `AsyncEngine`. looks: how many times the page looked at it."""

    is_stopping = False

    def __init__(self, engine: Engine):
        self.engine, self.looks = engine, 0

    async def call(self, look: Any) -> Any:
        self.looks += 1
        return look(self.engine)


def test_many_readers_share_a_look() -> None:
    watched = Watched()
    engine = Counted(watched.engine)

    async def scene() -> None:
        async def seen_by_many() -> None:
            async with AsyncExitStack() as stack:
                readers = [await stack.enter_async_context(aclosing(watched.live.events(engine))) for _ in range(50)]
                assert len(set(await asyncio.gather(*map(anext, readers)))) == 1

        await seen_by_many()
        assert engine.looks == 1
        watched.now += 2 * INTERVAL
        await seen_by_many()
        assert engine.looks == 2

    asyncio.run(scene())


def test_a_reader_who_leaves_does_not_end_the_look_of_others() -> None:
    watched = Watched()
    engine, may_look = Counted(watched.engine), asyncio.Event()

    async def slow(look: Any) -> Any:
        await may_look.wait()
        return look(engine.engine)

    async def scene() -> None:
        engine.call = slow  # type: ignore[method-assign]
        one, other = (asyncio.ensure_future(anext(watched.live.events(engine))) for _ in range(2))
        await asyncio.sleep(0)
        one.cancel()
        may_look.set()
        assert "steps" in await other

    asyncio.run(scene())
