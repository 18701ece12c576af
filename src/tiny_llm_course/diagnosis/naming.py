"""Names a learner's mistake: the catalogue's mistake that gives the same test results as the learner's code."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from time import monotonic
from typing import Generic, TypeVar

from .observation import Observation

__all__ = ["Diagnosis"]

Test = TypeVar("Test")

MAX_SECONDS = 5.0  # seconds for all replays of the first failing test


class Diagnosis(Generic[Test]):
    """The diagnosis of a learner's code for one task. `add` takes the task's tests in the order in which they ran.

    replay: a function that runs a test on the reference, with a mistake built in or, if the mistake is None, unchanged.
    This function is not called until a test has failed. If the unchanged reference fails in the same way, the machine
    is at fault, and no mistake is named.
    ready: a function that takes the first failing test, and returns the mistakes that can be replayed without a long
        wait for a compiler.
    """

    def __init__(
        self,
        mistakes: list[str],
        replay: Callable[[Test, str | None], Observation],
        ready: Callable[[Test], list[str]] | None = None,
    ):
        self._mistakes = mistakes
        self._replay = replay
        self._ready = ready or (lambda test: mistakes)
        self._candidates: list[str] = []
        self._left = 0
        self._passed: list[tuple[Test, Observation]] = []
        self._has_failed = False

    def add(self, test: Test, seen: Observation) -> None:
        """Add a test, and the observation of its run with the learner's code."""
        if self._has_failed:
            self._filter(test, seen)
        elif seen.failed:
            self._has_failed = True
            self._begin(test, seen)
            for earlier in self._passed:  # the learner's code passed, so a mistake that fails is not the learner's
                self._filter(*earlier)
        else:
            self._passed.append((test, seen))

    @property
    def named(self) -> str | None:
        """Return the mistake if exactly one mistake explains every test. Otherwise return None."""
        return self._candidates[0] if len(self._candidates) == 1 else None

    @property
    def left(self) -> int:
        """Return the number of mistakes that were not tried for lack of time."""
        return self._left

    def _begin(self, test: Test, seen: Observation) -> None:
        """Find the mistakes that explain the first failure."""
        if is_mute(seen):
            return
        ready = self._ready(test)
        if seen.equals(self._replay(test, None)):
            return
        end = monotonic() + MAX_SECONDS
        tried = 0
        for mistake in takewhile(lambda _: monotonic() < end, ready):
            tried += 1
            if seen.equals(self._replay(test, mistake)):
                self._candidates.append(mistake)
        self._left = len(self._mistakes) - tried

    def _filter(self, test: Test, seen: Observation) -> None:
        self._candidates = [mistake for mistake in self._candidates if seen.equals(self._replay(test, mistake))]


def is_mute(seen: Observation) -> bool:
    """Tell whether a test ended before the code under test produced any value or error that can be compared."""
    return type(seen.error).__name__ in ("CompileError", "TimedOut")
