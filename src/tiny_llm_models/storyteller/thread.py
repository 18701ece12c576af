"""A thread: one way to read a story, with the faults that this reading finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from .grammar import Plot
from .matching import Match
from .net import Net
from .story import TextLine
from .world import World

__all__ = ["Fault", "Thread"]


@dataclass(frozen=True)
class Fault:
    """A fault of a story. kind: a key of FAULTS. sentence: the sentence's number, from 0."""

    kind: str
    sentence: int
    explanation: str


@dataclass(frozen=True)
class Thread:
    """A way to read the story up to a place: one state in the simulation of a nondeterministic automaton.

    point: the point of the plot that the reading has reached. cost: the number of faults, but at least 1 for each
    text that was skipped.
    """

    net: Net
    point: int
    match: Match
    world: World = field(default_factory=World)
    lines: tuple[TextLine, ...] = ()
    faults: tuple[Fault, ...] = ()
    cost: float = 0
    lenient: bool = False  # whether an unreadable part may have introduced any person or thing

    @property
    def plot(self) -> Plot:
        return self.net.plot

    def key(self) -> object:
        """Return a key that readings with the same continuations share."""
        match = self.match
        return id(self.net), self.point, frozenset(match.cast.items()), match.past, self.world, match.focus
