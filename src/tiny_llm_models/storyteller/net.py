"""A plot as a nondeterministic automaton, which says which lines may follow each point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .grammar import Alternatives, Line, Plot, Steps, Told, slots
from .lexicon import capitalised
from .world import World

__all__ = ["Edge", "Net"]


@dataclass(frozen=True, eq=False)
class Edge:
    """A line, and the point of the plot after this line. Later points have higher numbers.

    local: the groups of the roles that occur only in this line.
    first: the text with which every telling of the line begins, and the same text with a capital; "" if a slot or a
        choice comes first.
    longest: the longest text that every telling of the line contains.
    """

    line: Line
    target: int
    local: Mapping[str, str]
    first: tuple[str, str]
    longest: str

    def may_begin(self, text: str, place: int) -> bool:
        """Tell whether the text from this place on begins like the line, or ends within the line's beginning."""
        if text.startswith(self.first, place):
            return True
        rest = len(text) - place
        return rest < len(self.first[0]) and any(first.startswith(text[place:]) for first in self.first)


class Net:
    """A plot as a graph: its nodes are the points of the plot, and each edge is a line that leads to a later point. A
    story begins at point 0 and may end at `last`."""

    def __init__(self, plot: Plot):
        self.plot = plot
        self.edges: list[Edge] = []
        self._lines: list[list[Edge]] = [[]]
        self._jumps: list[list[tuple[int, Alternatives | None]]] = [[]]  # None: the jump is always possible
        self.last = self._sequence(plot.steps, 0)
        self._closures: dict[tuple[int, World], tuple[int, ...]] = {}

    def expected(self, point: int, world: World) -> list[Edge]:
        """Return the lines that may come next. The conditions of these lines are not tested."""
        return [edge for each in self._closure(point, world) for edge in self._lines[each]]

    def may_end(self, point: int, world: World) -> bool:
        """Tell whether the story may end at this point."""
        return self.last in self._closure(point, world)

    def _closure(self, point: int, world: World) -> tuple[int, ...]:
        """Return all points that can be reached from this point without telling a line."""
        key = (point, world)
        if key not in self._closures:
            if len(self._closures) > 10_000:
                self._closures.clear()
            reached = [point]
            for each in reached:
                for target, step in self._jumps[each]:
                    if target not in reached and (step is None or _skippable(step, world)):
                        reached.append(target)
            self._closures[key] = tuple(reached)
        return self._closures[key]

    def _new(self) -> int:
        self._lines.append([])
        self._jumps.append([])
        return len(self._lines) - 1

    def _sequence(self, steps: Steps, point: int) -> int:
        """Add these steps after a point, and return the point after them."""
        for step in steps:
            if isinstance(step, Line):
                target = self._new()
                edge = _edge(step, target)
                self._lines[point].append(edge)
                self.edges.append(edge)
                point = target
            else:
                ends = []
                for option in step.options:
                    start = self._new()
                    self._jumps[point].append((start, None))
                    ends.append(self._sequence(option, start))
                after = self._new()
                for end in ends:
                    self._jumps[end].append((after, None))
                if step.told is not Told.ALWAYS:
                    self._jumps[point].append((after, step))
                point = after
        return point


def _skippable(step: Alternatives, world: World) -> bool:
    return step.told is Told.OPTIONAL or not world.options(step)


def _edge(line: Line, target: int) -> Edge:
    literals = [part for part in line.text if isinstance(part, str)]
    first = line.text[0] if line.text and isinstance(line.text[0], str) else ""
    local = {slot.role: slot.group for slot in slots(line.text) if slot.group}
    longest = max(literals, key=len, default="")[1:]  # the first character may be a capital
    return Edge(line, target, local, (first, capitalised(first)), longest)
