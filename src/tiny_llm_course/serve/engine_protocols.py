"""Protocols for the objects with which commands serve requests. A protocol lists only the members that commands read or
call.

The objects may come from the reference or from a learner's package, so commands name these protocols instead of
classes. Where the reference is installed, mypy checks that the reference's classes match the protocols.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

__all__ = ["AsyncEngine", "Batch", "Chunk", "EndedRequest", "Engine", "Observer", "Request", "RequestText", "Scheduler"]

T = TypeVar("T")


class RequestText(Protocol):
    """The text of an output."""

    @property
    def text(self) -> str: ...


class Request(Protocol):
    """A request, from its arrival to its end."""

    @property
    def id(self) -> str: ...
    @property
    def prompt(self) -> Sequence[int]: ...
    @property
    def output(self) -> Sequence[int]: ...
    @property
    def pages(self) -> Sequence[int]: ...
    @property
    def num_computed_tokens(self) -> int: ...
    @property
    def num_drafted(self) -> int: ...
    @property
    def num_accepted(self) -> int: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def error(self) -> Exception | None: ...


class Chunk(Protocol):
    """The tokens of one request that a step computes."""

    @property
    def request(self) -> Request: ...
    @property
    def tokens(self) -> Sequence[int]: ...
    @property
    def start(self) -> int: ...
    @property
    def num_logits(self) -> int: ...


class Batch(Protocol):
    """The work of a step."""

    @property
    def chunks(self) -> Sequence[Chunk]: ...
    @property
    def preempted(self) -> Sequence[str]: ...


class Scheduler(Protocol):
    """The requests of an engine. Iterating over a scheduler yields all of its requests."""

    @property
    def running(self) -> Sequence[Request]: ...
    @property
    def waiting(self) -> Collection[Request]: ...
    @property
    def max_running(self) -> int: ...
    @property
    def cache(self) -> object: ...
    def __iter__(self) -> Iterator[Request]: ...


class Engine(Protocol):
    """An engine, which runs steps."""

    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def max_length(self) -> int: ...
    @property
    def has_work(self) -> bool: ...
    def add(self, request: Any, /) -> None: ...
    def step(self) -> Sequence[Request]: ...


class Observer(Protocol):
    """A listener that an engine calls after each step."""

    def on_step(self, engine: Any, batch: Any, touched: Any) -> None: ...
    def on_abort(self, engine: Any, request: Any) -> None: ...


class EndedRequest(Protocol):
    """The record of a finished request. prompt, output: token counts. first: seconds from the request's arrival to its
    first token. rate: tokens per second after the first token."""

    @property
    def id(self) -> str: ...
    @property
    def prompt(self) -> int: ...
    @property
    def output(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def first(self) -> float | None: ...
    @property
    def rate(self) -> float | None: ...


class AsyncEngine(Protocol):
    """An engine that runs in a thread of its own."""

    @property
    def broken(self) -> asyncio.Event: ...
    @property
    def error(self) -> Exception | None: ...
    @property
    def is_stopping(self) -> bool: ...
    @property
    def num_requests(self) -> int: ...
    @property
    def num_aborted(self) -> int: ...
    async def start(self) -> None: ...
    async def stop(self, timeout: float | None = None) -> None: ...
    async def call(self, function: Callable[[Any], T], /) -> T: ...


if TYPE_CHECKING:
    from tiny_llm_ref.serving import async_engine, engine, metrics

    def _reference_fits(
        one: engine.Engine, other: async_engine.AsyncEngine, ended: metrics.Ended
    ) -> tuple[Engine, AsyncEngine, EndedRequest]:
        return one, other, ended
