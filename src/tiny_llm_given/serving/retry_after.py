"""The time that a refused client should wait. Given."""

import math
import time
from collections.abc import Callable

__all__ = ["RetryAfter"]

_FIRST = 0.1  # seconds from one request's end to the next request's end, until this time has been measured
_LONGEST = 60  # seconds: OpenAI's clients ignore a longer time
_ENOUGH = 64  # requests: after this many, all earlier requests count half


class RetryAfter:
    """An estimate of how long a refused client should wait: until the clients that were refused earlier are served.

    If all refused clients came back at once, most would be refused again, and OpenAI's clients try only three times. So
    the server tells each refused client a later time than the previous one. The difference is the mean time from one
    request's end to the next, measured while the server has requests, which it reports with `begin` and `end`. Until
    the first of them ends, the difference is the time since that request began, or the previous mean if that is longer.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._known = _FIRST  # the pace measured last: seconds per request
        self._num_now = self._num_ended = 0
        self._since = 0.0  # when the measurement of the pace began
        self._last = 0.0  # the time that the last refused client was told

    def begin(self, count: int = 1) -> None:
        """Record that the server begins to serve this many requests."""
        if self._num_now == 0:
            self._since, self._num_ended = self._clock(), 0
        self._num_now += count

    def end(self, count: int = 1, *, were_served: bool = True) -> None:
        """Record that this many requests have ended. were_served: False if the requests were refused immediately, so
        that their end says nothing about the pace."""
        now = self._clock()
        self._num_now -= count
        if not were_served:
            return
        self._num_ended += count
        self._known = (now - self._since) / self._num_ended
        if self._num_ended >= _ENOUGH:
            self._since, self._num_ended = (self._since + now) / 2, self._num_ended // 2

    def seconds(self, count: int = 1) -> int:
        """Return how many seconds a client whose `count` requests are refused should wait."""
        now = self._clock()
        self._last = min(max(self._last, now) + count * self._pace(now), now + _LONGEST)
        return max(1, math.ceil(self._last - now))

    def _pace(self, now: float) -> float:
        """Return the mean time from one request's end to the next request's end, in seconds."""
        if self._num_now == 0:
            return self._known
        passed = now - self._since
        return passed / self._num_ended if self._num_ended else max(passed, self._known)
