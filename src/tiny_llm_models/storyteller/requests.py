"""Requests for stories, with the stories that fulfil them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from .grammar import Choice, Line, Slot, slots
from .lexicon import LANGUAGES, WORD, Entity, Lexicon, lexicon
from .story import Story
from .telling import say, tell
from .wishes import HERO, Wish, about_hero

__all__ = ["GIST", "Request", "fulfils", "gists", "request"]

GIST = "gist"  # {gist} in a request stands for one of the plot's gists
_ROLES = ("thing", "place", "spot")  # a request's roles, without the hero; a role is named after its sort
_HOME = "home"  # a group of places that no request names
_SHORT, _OTHER_LANGUAGE = 0.2, 0.05  # shares of all requests


@dataclass(frozen=True)
class Request:
    """A user's request, and a story that fulfils it. wish: the details that the request names."""

    text: str
    wish: Wish
    story: Story


def request(words: Lexicon, random: Random) -> Request:
    """Draw a request in this language: for any story, a short story, a story about something, or a story in another
    language.

    A request about a person names the story's hero, or a kind of person that is the hero of no plot.
    """
    lot = random.random()
    if lot < _OTHER_LANGUAGE:
        other = lexicon(next(language for language in LANGUAGES if language != words.language))
        return Request(random.choice(words.chat["other"]), Wish(), tell(other, random))
    short = lot < _OTHER_LANGUAGE + _SHORT
    story = tell(words, random, Wish(short=short))
    while True:
        template = words.notation.line(random.choice(words.chat["short" if short else "requests"]))
        if asked := _asked(words, random, story, template, Wish(short=short)):
            return asked


def fulfils(story: Story, wish: Wish) -> bool:
    """Tell whether a story has every detail of a wish; `short` is not checked."""
    roles = [HERO] if about_hero(story.lexicon, wish) else story.roles("person")
    persons = (story.cast[role] for role in roles if role in story.cast)
    things = (story.cast[role] for role in story.roles("thing"))
    places = (story.cast[role] for sort in ("place", "spot") for role in story.roles(sort))
    return (
        wish.plot in ("", story.plot.name)
        and _any_has(persons, name=wish.name, kind=wish.kind, look=wish.look)
        and _any_has(things, noun=wish.thing, look=wish.thing_look)
        and _any_has(places, noun=wish.place)
    )


def gists(story: Story) -> list[Line]:
    """Return the plot's gists that suit this story. A request for the story may state one of these gists about the
    hero."""
    return [gist for gist in story.plot.gists if story.suits(gist)]


def _any_has(entities: Iterable[Entity], **words: str) -> bool:
    """Tell whether one of the entities has all of these words. A word that is an empty string is ignored."""
    wanted = {word: value for word, value in words.items() if value}
    return not wanted or any(all(one[word] == value for word, value in wanted.items()) for one in entities)


def _asked(words: Lexicon, random: Random, story: Story, template: Line, wish: Wish) -> Request | None:
    """Make a request from this template. Return None if the story lacks something that the template names."""
    subject = HERO
    if Slot(GIST) not in template.text:
        subject = _subject(words, random, story)
    elif said := gists(story):
        template, wish = _with_gist(template, random.choice(said)), replace(wish, plot=story.plot.name)
    else:
        return None
    cast, used = _cast(random, story, subject), list(slots(template.text))
    if any(slot.role not in cast and not slot.group for slot in used):
        return None
    named = (_details(words, slot, cast[slot.role]) for slot in used if slot.role in cast)
    for details in named:
        wish = replace(wish, **details)
    if subject != HERO and (not wish.kind or any(slot.role != HERO for slot in used)):
        return None  # a request can say of this person only that they are in the story
    return Request(say(words, cast, template)[0], wish, story)


def _cast(random: Random, story: Story, subject: str) -> dict[str, Entity]:
    """Return the entities for the roles of a request."""
    cast = {**story.cast, HERO: story.cast[subject]}
    for sort in _ROLES:
        if named := [role for role in story.roles(sort) if _HOME not in story.plot.cast[role].split("|")]:
            cast.setdefault(sort, story.cast[random.choice(named)])
    return cast


def _with_gist(template: Line, gist: Line) -> Line:
    text = (Choice((gist.text,)) if part == Slot(GIST) else part for part in template.text)
    return replace(template, text=tuple(text))


def _subject(words: Lexicon, random: Random, story: Story) -> str:
    """Draw the role of the person whom a request for the story names."""
    persons = {role: Wish(kind=story.cast[role]["kind"]) for role in story.roles("person") if role != HERO}
    return random.choice([HERO, *(role for role, wish in persons.items() if not about_hero(words, wish))])


def _details(words: Lexicon, slot: Slot, entity: Entity) -> dict[str, Any]:
    """Return the details in this slot of a request, as fields of a wish."""
    said = {match[1]: entity[match[1]] for match in WORD.finditer(words.pattern(entity, slot.form))}
    if slot.role == HERO:
        return {word: said[word] for word in ("name", "kind", "look") if word in said}
    if entity.sort == "thing":
        return {field: said[word] for field, word in (("thing", "noun"), ("thing_look", "look")) if word in said}
    return {"place": said["noun"]} if entity.sort in ("place", "spot") and "noun" in said else {}
