"""The state of a story: who has which thing, where things and persons are, and which marks are set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .grammar import Alternatives, Condition, Effect, Line, Steps, Told

__all__ = ["World"]


@dataclass(frozen=True)
class World:
    """The facts that hold at one point of a story.

    facts: pairs of roles (a thing and the person who has it, or a thing or person and the spot or place where it is),
    and pairs of a mark and "".
    """

    facts: frozenset[tuple[str, str]] = frozenset()

    def where(self, role: str) -> str:
        """Return the role of the person who has a thing, or of the spot or place where a thing or person is. Return ""
        if the story has not told this."""
        return next((where for what, where in self.facts if what == role), "")

    def contents(self, role: str) -> list[str]:
        """Return the roles of everything in a place, or of everything that a person has."""
        return sorted(what for what, where in self.facts if where == role)

    def holds(self, condition: Condition) -> bool:
        """Tell whether the condition is true."""
        return ((condition.what, condition.where) in self.facts) != condition.negated

    def unmet(self, line: Line) -> list[Condition]:
        """Return the line's conditions that do not hold."""
        before = (Condition(effect.what, effect.was) for effect in line.effects if effect.was)
        return [condition for condition in (*line.conditions, *before) if not self.holds(condition)]

    def allows(self, steps: Steps) -> bool:
        """Tell whether these steps can begin here."""
        step = steps[0]
        if isinstance(step, Line):
            return not self.unmet(step)
        return step.told is Told.OPTIONAL or bool(self.options(step))

    def options(self, alternatives: Alternatives) -> list[Steps]:
        """Return the alternatives that can be told here."""
        return [option for option in alternatives.options if self.allows(option)]

    def after(self, effects: Iterable[Effect]) -> World:
        """Return the state after these effects."""
        facts = self.facts
        for effect in effects:
            facts = frozenset(fact for fact in facts if fact[0] != effect.what) | {(effect.what, effect.where)}
        return World(facts) if facts is not self.facts else self
