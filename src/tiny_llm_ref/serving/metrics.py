"""What a server tells of itself, in Prometheus' form. Given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import get_args
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .batch import Batch
from .engine import Engine
from .request import FinishReason, Request

__all__ = ["Metrics"]

_FIRST = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)  # seconds to the first token
_BETWEEN = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3)  # seconds between two tokens
_REASONS = "Requests that are over. abort: the client left, or the server ended. error: the request or a step failed."


@dataclass
class _Progress:
    """Of a request that is served. last: when it came, or had its last token."""

    last: float
    num_output: int = 0
    num_drafted: int = 0
    num_accepted: int = 0


class Metrics:
    """An observer of an engine, in whose thread all of it runs but `text`.

    cached: of each request, how many tokens of its prompt did not have to be computed.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter):
        self.cached: WeakKeyDictionary[Request, int] = WeakKeyDictionary()
        self._served: WeakKeyDictionary[Request, _Progress] = WeakKeyDictionary()
        self._clock = clock
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("tiny_llm_requests", _REASONS, ["finish_reason"], registry=registry)
        self._tokens = Counter("tiny_llm_tokens", "Tokens, by what became of them.", ["kind"], registry=registry)
        self._gauges = Gauge("tiny_llm_requests_now", "Requests in the engine.", ["status"], registry=registry)
        self._pages = Gauge("tiny_llm_pages", "Pages of the cache.", ["status"], registry=registry)
        self._preempted = Counter("tiny_llm_preemptions", "Requests that lost their pages.", registry=registry)
        self._first = Histogram(
            "tiny_llm_time_to_first_token_seconds", "From arrival.", buckets=_FIRST, registry=registry
        )
        self._between = Histogram(
            "tiny_llm_time_between_tokens_seconds", "Within a request.", buckets=_BETWEEN, registry=registry
        )
        for kind in ("prompt", "cached", "output", "drafted", "accepted"):
            self._tokens.labels(kind)
        for reason in get_args(FinishReason):  # from 0 on: a rate needs what a counter was before it grew
            self._requests.labels(reason)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)

    def arrive(self, request: Request) -> None:
        """A request was given to the engine."""
        self._served[request] = _Progress(self._clock())

    def on_step(self, engine: Engine, batch: Batch, touched: Sequence[Request]) -> None:
        self._preempted.inc(len(batch.preempted))
        for chunk in batch.chunks:
            if chunk.request not in self.cached:
                self.cached[chunk.request] = chunk.start
                self._tokens.labels("prompt").inc(len(chunk.request.prompt))
                self._tokens.labels("cached").inc(chunk.start)
        now = self._clock()
        for request in touched:
            self._advance(request, now)
            if request.finish_reason is not None:
                self._end(request)
        self._look_at(engine)

    def on_abort(self, engine: Engine, request: Request) -> None:
        self._end(request)
        self._look_at(engine)

    def _advance(self, request: Request, now: float) -> None:
        """A request has tokens that it had not at the step before."""
        progress = self._served[request]
        count = len(request.output) - progress.num_output
        if not count:
            return
        if progress.num_output:
            self._between.observe(now - progress.last)
        else:
            self._first.observe(now - progress.last)
        for kind, more in (
            ("output", count),
            ("drafted", request.num_drafted - progress.num_drafted),
            ("accepted", request.num_accepted - progress.num_accepted),
        ):
            self._tokens.labels(kind).inc(more)
        self._served[request] = _Progress(now, len(request.output), request.num_drafted, request.num_accepted)

    def _end(self, request: Request) -> None:
        if self._served.pop(request, None) is not None:
            self._requests.labels(request.finish_reason).inc()

    def _look_at(self, engine: Engine) -> None:
        scheduler = engine.scheduler
        self._gauges.labels("running").set(len(scheduler.running))
        self._gauges.labels("waiting").set(len(scheduler.waiting))
        pool = getattr(scheduler.cache, "pool", None)
        if pool is not None:
            tree = getattr(scheduler.cache, "tree", None)
            kept = 0 if tree is None else tree.num_evictable
            self._pages.labels("free").set(pool.num_free)
            self._pages.labels("cached").set(kept)
            self._pages.labels("used").set(pool.num_pages - pool.num_free - kept)
