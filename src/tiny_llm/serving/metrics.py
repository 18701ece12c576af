"""The metrics of a server, in Prometheus' format. Given."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import get_args
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .batch import Batch
from .engine import Engine
from .request import FinishReason, Request

__all__ = ["Ended", "Metrics"]

_FIRST = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)  # seconds to the first token
_BETWEEN = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3)  # seconds between two tokens
_REASONS = "Finished requests. abort: the client left, or the server ended. error: the request or a step failed."


_MOST_ENDED = 8  # requests that `Metrics.ended` remembers


@dataclass(frozen=True)
class Ended:
    """A finished request. prompt, output: their token counts. first: seconds from arrival to the first token; None
    without a first token. rate: tokens per second after the first token; None without a second token."""

    id: str
    prompt: int
    output: int
    reason: FinishReason
    first: float | None
    rate: float | None


@dataclass
class _Progress:
    """The progress of a request. arrival: when the request arrived. first: when its first token came. last: when its
    latest token came or, without a token, `arrival`. has_begun: whether the prompt's tokens have been counted."""

    arrival: float
    last: float
    has_begun: bool = False
    first: float | None = None
    num_output: int = 0
    num_drafted: int = 0
    num_accepted: int = 0


class Metrics:
    """An observer that counts requests, tokens and pages. All methods but `text` run in the engine's thread.

    ended: the last few finished requests, the latest first.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter):
        self.ended: deque[Ended] = deque(maxlen=_MOST_ENDED)
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
        for reason in get_args(FinishReason):  # begin at 0: a rate needs the value before the first increase
            self._requests.labels(reason)

    def text(self) -> bytes:
        """Return all metrics in the format that Prometheus reads."""
        return generate_latest(self._registry)

    def arrive(self, request: Request) -> None:
        """Record that a request was passed to the engine."""
        now = self._clock()
        self._served[request] = _Progress(now, now)

    def on_step(self, engine: Engine, batch: Batch, touched: Sequence[Request]) -> None:
        self._preempted.inc(len(batch.preempted))
        for chunk in batch.chunks:
            progress = self._served.get(chunk.request)
            if progress is not None and not progress.has_begun:
                progress.has_begun = True
                self._tokens.labels("prompt").inc(len(chunk.request.prompt))
                self._tokens.labels("cached").inc(chunk.request.num_cached_tokens or 0)
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
        """Record the tokens that a request got since the previous step."""
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
        progress.last, progress.first = now, now if progress.first is None else progress.first
        progress.num_output = len(request.output)
        progress.num_drafted, progress.num_accepted = request.num_drafted, request.num_accepted

    def _end(self, request: Request) -> None:
        progress = self._served.pop(request, None)
        if progress is not None and request.finish_reason is not None:
            self._requests.labels(request.finish_reason).inc()
            self.ended.appendleft(_ended(request, request.finish_reason, progress))

    def _look_at(self, engine: Engine) -> None:
        scheduler = engine.scheduler
        self._gauges.labels("running").set(len(scheduler.running))
        self._gauges.labels("waiting").set(len(scheduler.waiting))
        pool = getattr(scheduler.cache, "pool", None)
        if pool is not None:
            used = len({page for request in scheduler.running for page in request.pages})
            self._pages.labels("free").set(pool.num_free)
            self._pages.labels("cached").set(pool.num_pages - pool.num_free - used)
            self._pages.labels("used").set(used)


def _ended(request: Request, reason: FinishReason, progress: _Progress) -> Ended:
    count, first = len(request.output), progress.first
    taken = 0.0 if first is None else progress.last - first
    return Ended(
        request.id,
        len(request.prompt),
        count,
        reason,
        None if first is None else first - progress.arrival,
        (count - 1) / taken if taken > 0 else None,
    )
