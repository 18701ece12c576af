"""What plots are made of: lines with slots and choices, conditions, effects, alternatives."""

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

DEFAULT_FORM = "name"  # the form of a role where none is named
GONE = "gone"  # where a thing is that was eaten, burnt or lost for good


@dataclass(frozen=True)
class Slot:
    """A hole in a sentence."""

    role: str
    form: str = DEFAULT_FORM
    short: str | None = None  # the form that may replace it where it is clear who is meant; "": nothing
    group: str = ""  # of somebody or something in this line only
    capital: bool = False


@dataclass(frozen=True)
class Choice:
    """A choice of one of several texts."""

    options: tuple[Text, ...]

    @cached_property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """The words of each option, whoever it is about."""
        return tuple(tuple(literals(option)) for option in self.options)


Text = tuple[str | Slot | Choice, ...]


@dataclass(frozen=True)
class Condition:
    """Something that holds: a fact ("the hero has the kite") or a mark, which has no place."""

    what: str
    where: str = ""
    negated: bool = False

    def __str__(self) -> str:
        return f"[{'not ' if self.negated else ''}{self.what}{': ' if self.where else ''}{self.where}]"


@dataclass(frozen=True)
class Effect:
    """A change: where something or somebody is from now on, or a mark, which has no place."""

    what: str
    where: str = ""
    was: str = ""  # where it has to be before, if that is said


@dataclass(frozen=True)
class Line:
    """A line: one or several sentences that belong together, when they may be told, and what changes once they are."""

    text: Text
    conditions: tuple[Condition, ...] = ()
    effects: tuple[Effect, ...] = ()
    source: str = ""  # as the author wrote it, for messages


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
        """The words of each option, whoever it is about."""
        return tuple(
            tuple(word for line in lines_of(option) for word in literals(line.text)) for option in self.options
        )


Steps = tuple[Line | Alternatives, ...]


@dataclass(frozen=True, eq=False)
class Plot:
    """The events of a story, its roles, and what can be asked and wished for."""

    name: str
    cast: Mapping[str, str]  # the group of each role
    steps: Steps  # the end included
    questions: tuple[tuple[Line, Line], ...]
    gists: tuple[Line, ...]  # "loses a ball": what a request says of the hero


def slots(text: Text) -> Iterator[Slot]:
    """All slots of a text, in order, in every option."""
    for part in text:
        if isinstance(part, Slot):
            yield part
        elif isinstance(part, Choice):
            for option in part.options:
                yield from slots(option)


def literals(text: Text) -> Iterator[str]:
    """All words of a text that stand in it as they are told, in every option."""
    for part in text:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Choice):
            for option in part.options:
                yield from literals(option)


def lines_of(steps: Steps) -> Iterator[Line]:
    """All lines of these steps, in order, in every option."""
    for step in steps:
        if isinstance(step, Line):
            yield step
        else:
            for option in step.options:
                yield from lines_of(option)
