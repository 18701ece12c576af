"""Questions about a story whose answers stand in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from .telling import Story
from .words import capitalised

__all__ = ["Question", "ask"]


@dataclass(frozen=True)
class Question:
    """A question, and the one answer that counts as right."""

    kind: str  # where, first, holder, person, content, colour
    text: str
    answer: str
    value: str  # what the answer tells: the place, the person, the thing or the colour
    last_mentioned: str  # what one would answer who only looks for the last place in the story; "" if that is no answer


def ask(
    story: Story, random: Random, count: int, kinds: tuple[str, ...] = (), gaps: Mapping[str, int] | None = None
) -> list[Question]:
    """Up to this many different questions, of different kinds where the story allows it.

    kinds: which ones to ask; all if none is named.
    gaps: by kind, how rare its questions are, 2 if not named; half the gap of another means twice as many.
    """
    options = [(kind, roles) for kind, roles in _options(story, random) if not kinds or kind in kinds]
    random.shuffle(options)
    ranked = sorted(zip(_ranks(options, gaps or {}), options, strict=True), key=lambda pair: pair[0])
    chosen = [option for _, option in ranked[:count]]
    random.shuffle(chosen)
    return [_question(story, random, kind, roles) for kind, roles in chosen]


def _ranks(options: list[tuple[str, Any]], gaps: Mapping[str, int]) -> Iterator[int]:
    """How many of its kind stand before each, times the kind's gap."""
    before: Counter[str] = Counter()
    for kind, _ in options:
        yield gaps.get(kind, 2) * before[kind]
        before[kind] += 1


def _options(story: Story, random: Random) -> list[tuple[str, dict[str, Any]]]:
    """Everything that can be asked, and of whom or what."""
    options: list[tuple[str, dict[str, Any]]] = []
    for thing in story.introduced:
        options.append(("colour", {"thing": thing}))
        if thing in story.spots:
            kind = random.choice(("where", "where", "content"))  # not both: one answers the other
            options.append((kind, {"thing": thing, "spot": story.spots[thing]}))
        else:
            options.append(("holder", {"thing": thing, "who": story.holders[thing]}))
        if thing in story.first_spots:
            options.append(("first", {"thing": thing, "spot": story.first_spots[thing]}))
    options.extend(("person", {"who": who, "place": place}) for who, place in story.places.items())
    return options


def _question(story: Story, random: Random, kind: str, roles: dict[str, Any]) -> Question:
    phrases = story.words.questions[kind]

    def answer(**other_roles: Any) -> str:
        return capitalised(phrases["answer"].format(**(roles | other_roles)))

    guess = ""
    if kind in ("where", "first"):
        guess = answer(spot=story.last_spot)
    elif kind == "person":
        guess = answer(place=story.last_place)
    value = {"content": "thing", "holder": "who", "person": "place", "colour": "thing"}.get(kind, "spot")
    told = roles["thing"].colour if kind == "colour" else str(roles[value])
    return Question(kind, capitalised(random.choice(phrases["ask"]).format(**roles)), answer(), told, guess)
