"""What a story shall be about, and which plots and roles can fulfil that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .grammar import Plot
from .lexicon import Lexicon

__all__ = ["HERO", "Wish", "about_hero", "fitting"]

HERO = "hero"  # the role that requests are about; every plot has it


@dataclass(frozen=True)
class Wish:
    """The wish for what a story shall be about; "" where it does not matter.

    plot: its name. name, kind, look: of the hero; or, where no plot has such a hero, of somebody else in it.
    thing, thing_look, place: what shall occur in it.
    short: whether optional lines are left out, and the shortest of a few tellings is taken.
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
    """Tell whether the person of the wish can be the hero. If not, the hero may be any person: "a story about an
    owl"."""
    person = _person(wish)
    return any(lexicon.complete(plot.cast[HERO], person) is not None for plot in _plots(lexicon, wish))


def fitting(lexicon: Lexicon, wish: Wish) -> list[tuple[Plot, dict[str, dict[str, str]]]]:
    """The plots that can fulfil the wish, each with the words that some of its roles must have.

    Raises ValueError if the wish names a plot that does not exist.
    """
    hero_only = about_hero(lexicon, wish)
    found = ((plot, _wished(lexicon, plot, wish, hero_only)) for plot in _plots(lexicon, wish))
    return [(plot, wished) for plot, wished in found if wished is not None]


def _plots(lexicon: Lexicon, wish: Wish) -> list[Plot]:
    if wish.plot and wish.plot not in lexicon.plots:
        raise ValueError(f"expected a plot, one of {sorted(lexicon.plots)}, got {wish.plot!r}")
    return [lexicon.plots[wish.plot]] if wish.plot else list(lexicon.plots.values())


def _wished(lexicon: Lexicon, plot: Plot, wish: Wish, hero_only: bool) -> dict[str, dict[str, str]] | None:
    """The words that roles of this plot must have; None if it has no fitting role for some of them."""
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
