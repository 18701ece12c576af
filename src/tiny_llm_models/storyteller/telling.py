"""The storyteller, which draws a plot and a cast, goes through the steps, and keeps the state of the world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from random import Random

from .focus import Focus
from .grammar import Alternatives, Choice, Line, Plot, Slot, Steps, Text, Told, lines_of, slots
from .lexicon import Entity, Lexicon, NobodyLeftError, capitalised
from .story import Naming, Story, TextLine, starts_sentence
from .wishes import Wish, fitting
from .world import World

__all__ = ["say", "scene", "tell"]

_OPTIONAL = 0.6  # the share of optional lines that are told
_PRONOUNS = 0.7  # how often to use a pronoun or drop a subject where both the long and the short form are clear
_SHORT_TELLINGS = 4  # the shortest of this many tellings becomes a short story
_TRIES = 30  # the most casts that are drawn to suit the wish


def tell(
    lexicon: Lexicon,
    random: Random,
    wish: Wish | None = None,
    taken: Iterable[Entity] = (),
    recast: Callable[[Entity], Entity] | None = None,
) -> Story:
    """Tell a story. The same state of `random` gives the same story.

    taken: entities that must not occur in the story. recast: a function that replaces the entity of a role with
    another.

    Raises:
        ValueError: no plot can fulfil the wish.
    """
    wish, taken = wish or Wish(), list(taken)
    plots = fitting(lexicon, wish)
    for _ in range(_TRIES if plots else 0):
        plot, wished = random.choice(plots)
        if (cast := _cast(lexicon, plot, random, wished, taken)) is None:
            continue
        if recast:
            cast = {role: recast(entity) for role, entity in cast.items()}
        tellings = _SHORT_TELLINGS if wish.short else 1
        stories = [_Teller(lexicon, random, cast, wish.short).story(plot) for _ in range(tellings)]
        if complete := [story for story in stories if wished.keys() <= story.cast.keys()]:
            return min(complete, key=lambda story: len(story.text))
    raise ValueError(f"expected a wish that a plot can fulfil, got {wish}")


def scene(lexicon: Lexicon, random: Random, taken: Iterable[Entity], recast: Callable[[Entity], Entity]) -> Story:
    """Tell a scene from scenes.toml in a few plain sentences. The arguments are those of `tell`.

    Raises:
        NobodyLeftError: all persons or things are taken.
    """
    plot = random.choice(lexicon.scenes)
    if (cast := _cast(lexicon, plot, random, {}, list(taken))) is None:
        raise NobodyLeftError("expected persons and things that are in no story yet, but all are taken")
    cast = {role: recast(entity) for role, entity in cast.items()}
    return _Teller(lexicon, random, cast, short=False).story(plot)


def say(lexicon: Lexicon, cast: Mapping[str, Entity], *lines: Line) -> list[str]:
    """Return the text of lines outside a story, such as a question and its answer, with short forms where their meaning
    is clear."""
    teller = _Teller(lexicon, Random(0), cast, short=False, share=1)
    return [teller.line(line) for line in lines]


def _cast(
    lexicon: Lexicon,
    plot: Plot,
    random: Random,
    wished: Mapping[str, Mapping[str, str]],
    taken: Sequence[Entity],
) -> dict[str, Entity] | None:
    """Draw a cast, or return None if too few entities are left.

    The entities of the wish are drawn first, so that no other role takes the words that the wish names.
    """
    cast: dict[str, Entity] = {}
    try:
        for role in [*wished, *(role for role in plot.cast if role not in wished)]:
            cast[role] = lexicon.draw(plot.cast[role], random, [*taken, *cast.values()], wished.get(role))
    except NobodyLeftError:
        return None
    return cast


class _Teller:
    """A teller of one story."""

    def __init__(
        self, lexicon: Lexicon, random: Random, cast: Mapping[str, Entity], short: bool, share: float = _PRONOUNS
    ):
        self._lexicon, self._random, self._cast, self._short, self._share = lexicon, random, cast, short, share
        self._world, self._focus = World(), Focus()
        self._lines: list[TextLine] = []
        self._choices: list[int] = []
        self._namings: list[Naming] = []
        self._used: Counter[Hashable] = Counter()
        self._named: set[str] = set()

    def story(self, plot: Plot) -> Story:
        self._steps(plot.steps)
        cast = {role: entity for role, entity in self._cast.items() if role in self._named}
        return Story(self._lexicon, plot, cast, tuple(self._lines), tuple(self._choices))

    def line(self, line: Line) -> str:
        """Return the text of a line, and apply its effects."""
        cast = dict(self._cast)
        for slot in slots(line.text):
            if slot.group and slot.role not in cast:
                cast[slot.role] = self._lexicon.draw(slot.group, self._random, cast.values())
        text = self._text(line.text, cast, "")
        self._world = self._world.after(line.effects)
        self._focus = self._focus.next_line()
        self._lines.append(TextLine(text, self._world, line.source, tuple(self._namings)))
        self._namings.clear()
        return text

    def _steps(self, steps: Steps) -> None:
        for step in steps:
            if isinstance(step, Line):
                if unmet := self._world.unmet(step):
                    raise ValueError(f"expected {unmet[0]} to hold before {step.source!r}")
                self.line(step)
            elif option := self._option(step):
                self._steps(option)

    def _option(self, step: Alternatives) -> Steps | None:
        if step.told is Told.OPTIONAL and (self._short or self._random.random() > _OPTIONAL):
            return None
        possible = [i for i, option in enumerate(step.options) if self._world.allows(option)]
        if not possible and step.told is Told.ALWAYS:
            sources = [line.source for line in lines_of((step,))]
            raise ValueError(f"expected that one of these can be told, but no condition holds: {sources}")
        return step.options[possible[self._rarest([step.words[i] for i in possible])]] if possible else None

    def _text(self, text: Text, cast: Mapping[str, Entity], before: str) -> str:
        """Return the line so far (`before`), followed by this text."""
        for part in text:
            if isinstance(part, Choice):
                before = self._text(part.options[self._rarest(part.words)], cast, before)
                continue
            if isinstance(part, str):
                self._focus = self._focus.text(part)
                said, capital = part, False
            else:
                said, capital = self._slot(part, cast), part.capital
            before += capitalised(said) if capital or starts_sentence(before) else said
        return before

    def _slot(self, slot: Slot, cast: Mapping[str, Entity]) -> str:
        if slot.role not in cast:
            raise ValueError(f"expected one of the roles {sorted(cast)}, got {slot.role!r}")
        entity, form = cast[slot.role], slot.form
        clear = self._focus.clear(slot.role, entity, slot.short)
        if clear and slot.short is not None and (self._focus.repeats(slot.role) or self._random.random() < self._share):
            form = slot.short
        self._focus = self._focus.named(slot.role, entity, self._lexicon.is_subject(slot.form))
        self._named.add(slot.role)
        self._namings.append(Naming(slot.role, form, clear))
        return self._lexicon.form(entity, form) if form else ""

    def _rarest(self, keys: Sequence[Hashable]) -> int:
        """Draw the index of one of the keys that the story has used least."""
        least = min(self._used[key] for key in keys)
        number = self._random.choice([i for i, key in enumerate(keys) if self._used[key] == least])
        self._choices.append(number)
        self._used[keys[number]] += 1 if keys[number] else 0
        return number
