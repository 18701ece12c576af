"""The parts of plots: lines with slots and choices, conditions, effects, alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

__all__ = [
    "DEFAULT_FORM",
    "GONE",
    "Alternatives",
    "Choice",
    "Condition",
    "Effect",
    "Line",
    "Plot",
    "Slot",
    "Steps",
    "Text",
    "Told",
    "lines_of",
    "literals",
    "slots",
]

DEFAULT_FORM = "name"  # the form of a slot that names no form
GONE = "gone"  # the place of a thing that has been eaten, burnt or lost for good


@dataclass(frozen=True)
class Slot:
    """A place in a sentence where an entity is named."""

    role: str
    form: str = DEFAULT_FORM
    short: str | None = None  # a form that may replace `form` if the meaning stays clear; "" drops the word
    group: str = ""  # the group of an entity that occurs only in this line
    capital: bool = False


@dataclass(frozen=True)
class Choice:
    """Several texts, one of which is told."""

    options: tuple[Text, ...]

    @cached_property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """Return the words of each option, without its slots."""
        return tuple(tuple(literals(option)) for option in self.options)


Text = tuple[str | Slot | Choice, ...]


@dataclass(frozen=True)
class Condition:
    """A condition: a fact, such as "the hero has the kite", or a mark, whose place is ""."""

    what: str
    where: str = ""
    negated: bool = False

    def __str__(self) -> str:
        return f"[{'not ' if self.negated else ''}{self.what}{': ' if self.where else ''}{self.where}]"


@dataclass(frozen=True)
class Effect:
    """A change: a thing or person has a new place, or a mark is set. The place of a mark is ""."""

    what: str
    where: str = ""
    was: str = ""  # the earlier place, if the line requires one


@dataclass(frozen=True)
class Line:
    """A line: one or more sentences that belong together, their conditions, and their effects."""

    text: Text
    conditions: tuple[Condition, ...] = ()
    effects: tuple[Effect, ...] = ()
    source: str = ""  # the author's text, for messages


class Told(Enum):
    """The condition under which alternatives are told."""

    ALWAYS = "one of them is told"
    OPTIONAL = "one of them or none, and none in a short story"
    WHEN = "the line if its condition holds, otherwise nothing"


@dataclass(frozen=True)
class Alternatives:
    """Several sequences, one of which is told."""

    options: tuple[Steps, ...]
    told: Told

    @cached_property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """Return the words of each option, without its slots."""
        return tuple(
            tuple(word for line in lines_of(option) for word in literals(line.text)) for option in self.options
        )


Steps = tuple[Line | Alternatives, ...]


@dataclass(frozen=True, eq=False)
class Plot:
    """A plot: the events of a story, its roles, its questions, and its gists."""

    name: str
    cast: Mapping[str, str]  # the group of each role
    steps: Steps  # including the end
    questions: tuple[tuple[Line, Line], ...]  # questions and answers
    gists: tuple[Line, ...]  # statements that a request may make about the hero, such as "loses a ball"


def slots(text: Text) -> Iterator[Slot]:
    """Yield all slots of a text, in order, from every option."""
    for part in text:
        if isinstance(part, Slot):
            yield part
        elif isinstance(part, Choice):
            for option in part.options:
                yield from slots(option)


def literals(text: Text) -> Iterator[str]:
    """Yield all literal parts of a text, from every option."""
    for part in text:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Choice):
            for option in part.options:
                yield from literals(option)


def lines_of(steps: Steps) -> Iterator[Line]:
    """Yield all lines of these steps, in order, from every option."""
    for step in steps:
        if isinstance(step, Line):
            yield step
        else:
            for option in step.options:
                yield from lines_of(option)
