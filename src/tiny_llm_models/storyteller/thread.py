"""One way to read a story, and the faults on the way."""

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
    """Something wrong with a story. sentence: its number, from 0."""

    kind: str
    sentence: int
    explanation: str


@dataclass(frozen=True)
class Thread:
    """A way to read the story up to a place, as in the simulation of a nondeterministic automaton.

    point: of the plot. cost: of the faults on the way.
    """

    net: Net
    point: int
    match: Match
    world: World = field(default_factory=World)
    lines: tuple[TextLine, ...] = ()
    faults: tuple[Fault, ...] = ()
    cost: float = 0
    lenient: bool = False  # something could not be read, so somebody may have been introduced there

    @property
    def plot(self) -> Plot:
        return self.net.plot

    def key(self) -> object:
        """Return a key that readings share if they go on alike."""
        match = self.match
        return id(self.net), self.point, frozenset(match.cast.items()), match.past, self.world, match.focus
