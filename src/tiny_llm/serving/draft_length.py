"""How many guesses a step checks for a request, chosen by how many of its earlier guesses were right. Given."""

from dataclasses import dataclass

from .request import Request

__all__ = ["AdaptiveLength", "DraftLength", "gain"]

_FIRST = (2.0, 3.0)  # a new request counts as one with 2 right guesses of 3, so that guessing is tried
_KEPT = 0.9  # the weight of all earlier steps, compared with the newest step
_PAUSES = (2, 16)  # steps without guesses before one guess is tried: at first, and at most


def gain(chance: float, guesses: int, requests: int, cost: float) -> float:
    """Return how many times as fast as without guesses each of several requests gets its tokens.

    A step of n rows is taken to last 1 + cost * (n - 1) times as long as a step of one row.
    chance: the probability that a guess is right. guesses: the number of guesses for each request. cost: how much
    longer a step lasts per additional row, including the time in which the row's guess is made.
    Source: Leviathan et al. 2023, sections 3.1 and 3.3, arXiv:2211.17192.
    """
    tokens = sum(chance**i for i in range(guesses + 1))
    seconds, plain = (1 + cost * (rows - 1) for rows in (requests * (guesses + 1), requests))
    return tokens * plain / seconds


class DraftLength:
    """A choice of the number of guesses, for each request and anew for each step. This class chooses the maximum."""

    def choose(self, request: Request, most: int, requests: int) -> int:
        """Return the number of guesses for a request, at most `most`. requests: how many requests get tokens in this
        step."""
        return most

    def note(self, request: Request, guesses: int, right: int) -> None:
        """Note that the first `right` of a request's guesses were right."""

    def forget(self, request: Request) -> None:
        """Drop all data about a finished request."""


@dataclass
class _Seen:
    """The history of a request's guesses. right, checked: sums over its steps, in which earlier steps weigh less.
    waited: how many steps in a row had no guesses. pause: how many such steps there are before one guess is tried."""

    right: float = _FIRST[0]
    checked: float = _FIRST[1]
    waited: int = 0
    pause: int = _PAUSES[0]


class AdaptiveLength(DraftLength):
    """A `DraftLength` that chooses the number with the largest gain.

    cost: as in `gain`. In our measurements on CPUs, 0.25 to 0.35 describes most steps. A step is not timed, because a
    request's tokens must not depend on how busy the machine is.
    """

    def __init__(self, cost: float = 0.3):
        self.cost = cost
        self._seen: dict[Request, _Seen] = {}

    def choose(self, request: Request, most: int, requests: int) -> int:
        seen = self._seen.setdefault(request, _Seen())
        chance = seen.right / seen.checked
        best = max(range(most + 1), key=lambda guesses: gain(chance, guesses, requests, self.cost))
        if best:
            seen.waited, seen.pause = 0, _PAUSES[0]
        elif seen.waited < seen.pause:
            seen.waited += 1
        else:
            seen.waited, seen.pause = 0, min(2 * seen.pause, _PAUSES[1])
            return 1
        return best

    def note(self, request: Request, guesses: int, right: int) -> None:
        seen = self._seen.setdefault(request, _Seen())
        seen.right = _KEPT * seen.right + right
        seen.checked = _KEPT * seen.checked + min(right + 1, guesses)  # what follows a wrong guess was never judged

    def forget(self, request: Request) -> None:
        self._seen.pop(request, None)
