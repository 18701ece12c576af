"""Names a learner's mistake: the one in the catalogue with which the tests go as they went for the learner."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from .recording import Observation

__all__ = ["Diagnosis"]

Test = TypeVar("Test")

MAX_REPLAYS = 400  # a second or two
MAX_SECONDS = 5.0  # kernels in Metal are compiled when they run; what was compiled is there the next time


class Diagnosis(Generic[Test]):
    """Of one task, fed with its tests in the order in which they ran.

    replay: runs a test with a mistake instead of the learner's code, or with none. Nothing is replayed before a test
        fails. Where it goes as with no mistake, the machine is at fault, and nothing is named.
    prepare: is called with that test before; where it says no, nothing is named.
    """

    def __init__(
        self,
        mistakes: list[str],
        replay: Callable[[Test, str | None], Observation],
        prepare: Callable[[Test], bool] = lambda test: True,
    ):
        self._candidates = mistakes
        self._replay = replay
        self._prepare = prepare
        self._replays = 0
        self._seconds = 0.0  # of all replays
        self._passed: list[tuple[Test, Observation]] = []
        self._has_failed = False

    def add(self, test: Test, seen: Observation) -> None:
        """How a test went with the learner's code."""
        if not self._has_failed and not seen.failed:
            self._passed.append((test, seen))
            return
        first = not self._has_failed
        self._has_failed = True
        if first and (not self._prepare(test) or seen.equals(self._replay(test, None))):
            self._candidates = []
        if first or len(self._candidates) > 1:
            self._filter(test, seen)
        if first:
            for earlier in self._passed:  # the learner passed it: a mistake that fails it is another one
                self._filter(*earlier)

    @property
    def named(self) -> str | None:
        """The mistake, if one and only one explains every test that was looked at."""
        return self._candidates[0] if self._has_failed and len(self._candidates) == 1 else None

    def _filter(self, test: Test, seen: Observation) -> None:
        self._replays += len(self._candidates)
        if self._replays <= MAX_REPLAYS:
            found = [name for name in self._candidates if self._explains(name, test, seen)]
            self._candidates = found if self._seconds < MAX_SECONDS else []

    def _explains(self, name: str, test: Test, seen: Observation) -> bool:
        if self._seconds >= MAX_SECONDS:
            return False
        start = monotonic()
        replayed = self._replay(test, name)
        self._seconds += monotonic() - start
        return seen.equals(replayed)
