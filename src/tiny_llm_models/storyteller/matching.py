"""Matches a plot's line with a text, exactly or with mismatches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .focus import Focus
from .forms import Forms, Mismatch
from .grammar import Choice, Slot, Text
from .lexicon import Entity, Lexicon, capitalised
from .net import Edge

__all__ = ["Match", "Matcher"]

_RESULTS = 12  # at most this many readings of one line at one place are followed
_STOP = re.compile('[.!?] "?')  # the end of a sentence
_FUEL = 400_000  # the most parts of lines that are compared with one text


class Match(NamedTuple):
    """One way to match a line, or the part of the line that has been read so far, with the text.

    end: the index of the first character after the part that was read.
    cast: the entity of each role. here: the entities of the roles that occur only in this line.
    past: the entities of such roles in all lines so far.
    met: the roles that the line names. introduced: the roles that the line introduces.
    """

    end: int
    cast: Mapping[str, Entity]
    focus: Focus
    here: Mapping[str, Entity] = {}
    past: tuple[Entity, ...] = ()
    met: frozenset[str] = frozenset()
    introduced: frozenset[str] = frozenset()
    mismatches: tuple[tuple[int, Mismatch], ...] = ()  # each with an index in the text


class Matcher:
    """A matcher, which compares lines with one text."""

    def __init__(self, lexicon: Lexicon, text: str):
        self._lexicon, self._text, self._fuel = lexicon, text, _FUEL
        self._forms = Forms(lexicon, text)
        # The line that is being matched:
        self._groups: Mapping[str, str] = {}
        self._local: Mapping[str, str] = {}  # the groups of roles that occur only in this line
        self._start, self._budget = 0, 0
        # The text:
        self._begin = {place for match in _STOP.finditer(text) for place in (match.start() + 2, match.end())}
        self.furthest = 0  # the index of the character up to which some line agrees with the text

    def matches(
        self, edge: Edge, groups: Mapping[str, str], start: Match, budget: int = 0, known: Sequence[str] = ()
    ) -> list[Match]:
        """Return the ways to read a line at the place where `start` ends.

        groups: the group of each role, keyed by role. budget: how many mismatches are allowed. known: roles that
        need no introduction.
        """
        self._groups, self._start, self._budget, self._local = groups, start.end, budget, edge.local
        if edge.local:
            self._groups = {**groups, **edge.local}
        found = []
        for match in self._read(edge.line.text, 0, start._replace(here={}, met=frozenset(), introduced=frozenset())):
            after = self._text[match.end : match.end + 1]
            if after and self._lexicon.space and after != self._lexicon.space:
                continue
            match = self._introductions(match, start.cast, known)
            if len(match.mismatches) <= budget:
                end = match.end + len(self._lexicon.space) if after else match.end
                found.append(match._replace(end=end, focus=match.focus.next_line()))
            if len(found) == _RESULTS:
                break
        return found

    def _introductions(self, match: Match, before: Mapping[str, Entity], known: Sequence[str]) -> Match:
        """Add a mismatch for each person and thing that the line names but that neither the line nor the story
        introduced."""
        for role in sorted(match.met - match.introduced):
            entity = match.cast[role]
            if role in before or role in known or entity.sort not in ("person", "thing"):
                continue
            said = self._forms.said(entity)
            mismatch = ("not-introduced", f"{said} was never introduced") if entity.sort == "person" else None
            mismatch = mismatch or ("thing-from-nowhere", f"the story has not mentioned {said}")
            match = match._replace(mismatches=(*match.mismatches, (self._start, mismatch)))
        return match

    def _read(self, text: Text, number: int, at: Match) -> Iterator[Match]:
        """Yield the ways to read a text from its part `number` onwards."""
        while number < len(text):
            self._fuel -= 1
            part = text[number]
            number += 1
            if isinstance(part, str):
                if (end := self._literal(part, at.end)) < 0:
                    return
                at = at._replace(end=end, focus=at.focus.text(part))
                self.furthest = max(self.furthest, end)
                continue
            ways = self._choice(part, at) if isinstance(part, Choice) else self._slot(part, at)
            if number == len(text):
                yield from ways
                return
            for way in ways:
                yield from self._read(text, number, way)
            return
        if self._fuel > 0:
            yield at

    def _choice(self, choice: Choice, at: Match) -> Iterator[Match]:
        for option in choice.options:
            first = option[0] if option else ""
            if not isinstance(first, str) or self._literal(first, at.end) >= 0:
                yield from self._read(option, 0, at)

    def _literal(self, literal: str, start: int) -> int:
        """Return the index of the literal's end if the text contains the literal at this place, otherwise -1."""
        if self._text.startswith(literal, start) and not (literal[:1].islower() and self._begins(start)):
            return start + len(literal)
        if self._begins(start) and self._text.startswith(capitalised(literal), start):
            return start + len(literal)
        if len(self._text) - start < len(literal) and literal.startswith(self._text[start:]):
            self.furthest = len(self._text)  # the story ends within this line
        return -1

    def _begins(self, place: int) -> bool:
        """Tell whether a sentence begins here, so that its first letter is a capital."""
        if place == self._start or place in self._begin:
            return True
        return place == self._start + 1 and self._text[self._start] == '"'

    def _slot(self, slot: Slot, at: Match) -> Iterator[Match]:
        if self._fuel <= 0:
            return
        capital = slot.capital or self._begins(at.end)
        entity = (at.here if slot.role in self._local else at.cast).get(slot.role)
        if slot.short is not None:
            for end, found, mismatches in self._named(slot, slot.short, entity, capital, at):
                if entity is not None and not at.focus.clear(slot.role, entity, slot.short):
                    mismatches = (
                        *mismatches,
                        ("wrong-pronoun", f"unclear whether {self._forms.said(entity)} is meant"),
                    )
                yield from self._taken(slot, at, end, found, mismatches)
        for end, found, mismatches in self._named(slot, slot.form, entity, capital, at):
            yield from self._taken(slot, at, end, found, mismatches)

    def _named(
        self, slot: Slot, form: str, entity: Entity | None, capital: bool, at: Match
    ) -> Iterator[tuple[int, Entity, tuple[Mismatch, ...]]]:
        """Yield the readings of a form. A reading is the index of the form's end, the entity that the form names, and
        the mismatches with known facts."""
        if form == "":
            if entity is not None:
                yield at.end, entity, ()
            return
        others = [one for role, one in (*at.cast.items(), *at.here.items()) if role != slot.role]
        if entity is not None and (said := self._forms.text(entity, form)) is not None:
            said = capitalised(said) if capital else said
            if self._text.startswith(said, at.end):
                yield at.end + len(said), entity, ()
                return
        else:
            if slot.role not in self._local:
                others += at.past
            ways = self._forms.at(at.end, self._groups[slot.role], form, entity, capital)
            for end, found in ways:
                yield end, found, self._forms.doubles(found, others)
            if ways:
                return
        if len(at.mismatches) < self._budget:
            yield from self._wrongly_named(slot, form, entity, capital, at.end, others)

    def _wrongly_named(
        self, slot: Slot, form: str, entity: Entity | None, capital: bool, place: int, others: list[Entity]
    ) -> Iterator[tuple[int, Entity, tuple[Mismatch, ...]]]:
        group = self._groups[slot.role]
        for end, words in self._forms.anything(place, self._lexicon.sort(group), form, capital):
            if entity is None:
                yield end, *self._forms.misfit(group, words, others)
            elif mismatches := self._forms.mismatches(entity, words, others):
                yield end, entity, mismatches
            elif clash := self._forms.clash(entity, words, others):
                yield end, *clash

    def _taken(self, slot: Slot, at: Match, end: int, entity: Entity, new: tuple[Mismatch, ...]) -> Iterator[Match]:
        """Yield the reading after this slot if its mismatches are within the budget."""
        mismatches = (*at.mismatches, *((at.end, mismatch) for mismatch in new))
        if len(mismatches) > self._budget:
            return
        self.furthest = max(self.furthest, end)
        focus = at.focus.named(slot.role, entity, self._lexicon.is_subject(slot.form))
        if slot.role in self._local:
            past = at.past if entity in at.past else (*at.past, entity)
            here = {**at.here, slot.role: entity}
            yield at._replace(end=end, here=here, past=past, focus=focus, mismatches=mismatches)
            return
        met, introduced = at.met | {slot.role}, at.introduced
        if slot.form in self._lexicon.introducing:
            introduced = introduced | {slot.role}
        cast = at.cast if at.cast.get(slot.role) is entity else {**at.cast, slot.role: entity}
        yield Match(end, cast, focus, at.here, at.past, met, introduced, mismatches)
