"""Recovers after a fault: names the fault, and finds places where reading can continue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .matching import Match
from .net import Edge, Net
from .thread import Fault, Thread

if TYPE_CHECKING:
    from .reading import Reader

__all__ = ["Recovery"]

_BUDGET = 3  # the most mismatches between a line and its text
_SKIPPED = 3  # the most sentences that are skipped as unknown
_AHEAD = 8  # the most sentences that a line may have
_KEPT = 24  # the most readings that are kept


class Recovery:
    """The search for the cheapest explanation of a fault, at the place where all readings stopped."""

    def __init__(self, reader: Reader, threads: Sequence[Thread]):
        self._reader, self._threads = reader, threads
        self._place = threads[0].match.end
        self._sentence = reader.sentence_at(self._place)
        stop = reader.spans[min(self._sentence + _AHEAD, len(reader.spans)) - 1][1]
        text = reader.text[self._place : stop]
        self._possible = {net: [edge for edge in net.edges if edge.longest in text] for net in reader.nets}

    def threads(self) -> list[Thread]:
        """Return the readings that continue after the fault. Each of these readings includes the fault."""
        expected = self._cheapest(self._expected())
        if expected and expected[0].cost <= self._threads[0].cost + 1:
            return expected
        return self._cheapest([*expected, *self._elsewhere()]) or self._foreign() or self._unknown()

    def _cheapest(self, threads: Sequence[Thread]) -> list[Thread]:
        if not threads:
            return []
        least = min(thread.cost for thread in threads)
        return [thread for thread in threads if thread.cost <= least][:_KEPT]

    def _expected(self) -> list[Thread]:
        """Return the readings after a line that may come here, but that the text tells with wrong names, things or
        pronouns."""
        return [after for thread in self._threads for after in self._reader.steps(thread, _BUDGET)]

    def _elsewhere(self) -> Iterator[Thread]:
        """Yield the readings after a line that belongs to this plot, but not at this place."""
        for thread in self._threads:
            for edge in self._possible[thread.net]:
                for after in self._reader.step(thread, edge, _BUDGET):
                    later = edge.target > thread.point
                    why = "a part of the plot is missing before this" if later else "this comes too late"
                    after = self._with(after, "contradiction", why)
                    if later:
                        yield after
                    yield replace(thread, match=after.match, faults=after.faults, cost=after.cost)

    def _foreign(self) -> list[Thread]:
        """Return the readings after a line of another plot. The readings take this line as an addition to their own
        plot, or as a replacement for one line of their plot."""
        for net in self._reader.nets:
            for edge in self._possible[net]:
                for match in self._matches(net, edge):
                    return self._resumed(match.end, self._foreign_faults(match))
        return []

    def _unknown(self) -> list[Thread]:
        """Return the readings after text that no plot can tell."""
        reader, first = self._reader, self._sentence
        number = max(first, reader.sentence_at(max(self._place, reader.matcher.furthest - 1)))
        number = min(number, first + _SKIPPED - 1)
        last = number == len(reader.spans) - 1
        faults: list[Fault] = []
        if last and (not reader.complete or reader.matcher.furthest >= len(reader.text)):
            faults = [reader.no_end()]
        elif not self._misspelled(first, number):
            faults = [self._fault("unknown-sentence", "no line of any plot says this", number)]
        resumed: list[Thread] = []
        for skipped in range(number, min(first + _SKIPPED, len(reader.spans))):
            after = self._resumed(self._after(skipped), faults)
            resumed = resumed or after
            if any(True for thread in after for _ in reader.steps(thread)):
                return after
        return resumed

    def _misspelled(self, first: int, last: int) -> bool:
        return any(first <= fault.sentence <= last for fault in self._reader.spelled)

    def _after(self, sentence: int) -> int:
        spans = self._reader.spans
        return spans[sentence + 1][0] if sentence + 1 < len(spans) else len(self._reader.text)

    def _resumed(self, place: int, faults: list[Fault]) -> list[Thread]:
        """Move the stopped readings to a later place. The skipped text counts as one line of the plot, or as none."""
        found: dict[object, Thread] = {}
        for thread in self._threads:
            match = thread.match._replace(end=place, focus=thread.match.focus.next_line(), mismatches=())
            cost = thread.cost + max(1, len(faults))
            stay = replace(thread, match=match, faults=(*thread.faults, *faults), cost=cost, lenient=True)
            found.setdefault(stay.key(), stay)
            for edge in thread.net.expected(thread.point, thread.world):
                after = replace(stay, point=edge.target, world=thread.world.after(edge.line.effects))
                found.setdefault(after.key(), after)
        return list(found.values())[: 2 * _KEPT]

    def _matches(self, net: Net, edge: Edge) -> list[Match]:
        start = Match(self._place, {}, self._threads[0].match.focus)
        matcher = self._reader.matcher
        return matcher.matches(edge, net.plot.cast, start, budget=1, known=tuple(net.plot.cast))

    def _foreign_faults(self, match: Match) -> list[Fault]:
        """Return the faults of a line of another plot: one for the line, and one for each person and thing that the
        line adds to the story."""
        known = {entity[word] for entity in self._threads[0].match.cast.values() for word in ("name", "noun", "kind")}
        faults = [self._fault("contradiction", "this does not belong here")]
        for entity in match.cast.values():
            if entity["name"] and entity["name"] not in known:
                faults.append(self._fault("not-introduced", f"{entity['name']} was never introduced"))
            if entity.sort == "thing" and entity["noun"] not in known:
                faults.append(self._fault("thing-from-nowhere", f"the story has not mentioned {entity['noun']}"))
        return faults

    def _with(self, thread: Thread, kind: str, why: str) -> Thread:
        fault = self._fault(kind, why)
        return replace(thread, faults=(*thread.faults, fault), cost=thread.cost + 1)

    def _fault(self, kind: str, why: str, sentence: int | None = None) -> Fault:
        return Fault(kind, self._sentence if sentence is None else sentence, why)
