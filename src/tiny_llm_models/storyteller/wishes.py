"""Wishes for stories, and the plots and roles that can fulfil these wishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .grammar import Plot
from .lexicon import Lexicon

__all__ = ["HERO", "Wish", "about_hero", "fitting"]

HERO = "hero"  # the role that requests are about; every plot has this role


@dataclass(frozen=True)
class Wish:
    """A wish for a story. A detail that does not matter is "".

    plot: the plot's name.
    name, kind, look: words for the hero or, if no plot has such a hero, for another person.
    thing, thing_look, place: a thing with its look, and a place, that occur in the story.
    short: whether to leave out optional lines and take the shortest of a few tellings.
    """

    plot: str = ""
    name: str = ""
    kind: str = ""
    look: str = ""
    thing: str = ""
    thing_look: str = ""
    place: str = ""
    short: bool = False


def about_hero(lexicon: Lexicon, wish: Wish) -> bool:
    """Tell whether the person whom the wish describes can be the hero of some plot.

    Otherwise, the person may have any role in the story, such as the owl in "a story about an owl".
    """
    person = _person(wish)
    return any(lexicon.complete(plot.cast[HERO], person) is not None for plot in _plots(lexicon, wish))


@lru_cache(maxsize=64)  # most stories fulfil one of a few wishes
def fitting(lexicon: Lexicon, wish: Wish) -> Sequence[tuple[Plot, Mapping[str, Mapping[str, str]]]]:
    """Return the plots that can fulfil the wish, each with the words that some of its roles must have.

    Raises:
        ValueError: the wish names a plot that does not exist.
    """
    hero_only = about_hero(lexicon, wish)
    found = ((plot, _wished(lexicon, plot, wish, hero_only)) for plot in _plots(lexicon, wish))
    return tuple((plot, wished) for plot, wished in found if wished is not None)


def _plots(lexicon: Lexicon, wish: Wish) -> list[Plot]:
    if wish.plot and wish.plot not in lexicon.plots:
        raise ValueError(f"expected a plot, one of {sorted(lexicon.plots)}, got {wish.plot!r}")
    return [lexicon.plots[wish.plot]] if wish.plot else list(lexicon.plots.values())


def _wished(lexicon: Lexicon, plot: Plot, wish: Wish, hero_only: bool) -> dict[str, dict[str, str]] | None:
    """Return the words that roles of this plot must have, keyed by role. Return None if some of the wish's words fit no
    role."""
    roles: dict[str, list[str]] = {"person": [], "thing": [], "spot": [], "place": []}
    for role, group in plot.cast.items():
        roles[lexicon.sort(group)].append(role)
    found: dict[str, dict[str, str]] = {}
    for words, candidates in (
        (_person(wish), [HERO] if hero_only else roles["person"]),
        (_given({"noun": wish.thing, "look": wish.thing_look}), roles["thing"]),
        (_given({"noun": wish.place}), [*roles["place"], *roles["spot"]]),
    ):
        able = [role for role in candidates if lexicon.complete(plot.cast[role], words) is not None]
        if words and not able:
            return None
        if words:
            found[able[0]] = words
    return found


def _person(wish: Wish) -> dict[str, str]:
    return _given({"name": wish.name, "kind": wish.kind, "look": wish.look})


def _given(words: Mapping[str, str]) -> dict[str, str]:
    return {word: value for word, value in words.items() if value}
