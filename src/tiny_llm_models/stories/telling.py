"""A story in the making: what has been said, and what is where by now."""

from __future__ import annotations

from random import Random
from typing import Any

from .words import Person, Place, Spot, Thing, Words, capitalised

__all__ = ["Story"]


class Story:
    """Sentences about people and things, and the state of the world that they describe.

    Each method that changes the world also tells of it; questions and their answers are read off the state.
    """

    def __init__(self, words: Words, random: Random):
        self.words = words
        self.random = random
        self.sentences: list[str] = []
        self.spots: dict[Thing, Spot] = {}  # where things lie now
        self.first_spots: dict[Thing, Spot] = {}
        self.holders: dict[Thing, Person] = {}  # who has those that lie nowhere
        self.places: dict[Person, Place] = {}
        self.people: list[Person] = []
        self.introduced: list[Thing] = []
        self.last_spot: Spot | None = None  # the last ones mentioned, whatever for
        self.last_place: Place | None = None
        self._subject: Person | None = None  # of the last sentence
        self._beginning = ""  # of the next sentence
        self._used: set[str] = set()
        self._mentioned: set[Spot] = set()
        self._object: Thing | None = None

    @property
    def text(self) -> str:
        return (" " if self.words.english else "").join(self.sentences)

    def say(self, kind: str, **roles: Any) -> None:
        """Tell one sentence of this kind; roles fill its holes: who, other, thing, spot, old, place."""
        templates = self.words.sentences[kind]
        if self._beginning:  # only some sentences can stand behind "One day, "
            templates = [template for template in templates if template.startswith(("{subject}", "{who}"))]
        template = self._fresh(templates)
        who, thing = roles.get("who"), roles.get("thing")
        fillings = {
            name: self.random.choice(phrases)
            for name, phrases in self.words.scenery.items()
            if f"{{{name}}}" in template
        }
        if "{subject}" in template:
            fillings["subject"] = self._subject_form(roles["who"])
        if "{object}" in template:
            fillings["object"] = self._object_form(roles["thing"])
        self._add(self._beginning + template.format(**roles, **fillings))
        self._beginning = ""
        self._subject = who if "{subject}" in template or "{who}" in template else None
        if "{other}" in template:
            self._subject = None  # a pronoun could mean either
        self._object = thing if "{thing" in template or "{object}" in template else None
        if "{spot" in template:
            self.last_spot = roles["spot"]
        elif "{old" in template:
            self.last_spot = roles["old"]
        if "{place" in template:
            self.last_place = roles["place"]

    def begin(self, phrase: str) -> None:
        """Begin the next sentence with a phrase such as "One day"."""
        self._beginning = f"{phrase}, " if self.words.english else f"{phrase}、"
        self._subject = None

    def own(self, who: Person, thing: Thing, kind: str = "own") -> None:
        self.introduced.append(thing)
        self.holders[thing] = who
        self.say(kind, who=who, thing=thing)

    def put(self, who: Person, thing: Thing, spot: Spot) -> None:
        self._lay(thing, spot)
        self.say("put", who=who, thing=thing, spot=spot)

    def move(self, who: Person, thing: Thing, spot: Spot) -> None:
        old = self.spots[thing]
        self._lay(thing, spot)
        self.say("move", who=who, thing=thing, old=old, spot=spot)

    def take(self, who: Person, thing: Thing) -> None:
        old = self.spots.pop(thing)
        self.holders[thing] = who
        self.say("take", who=who, thing=thing, old=old)

    def give(self, who: Person, thing: Thing, other: Person) -> None:
        self.holders[thing] = other
        self.say("give", who=who, thing=thing, other=other)

    def go(self, who: Person, place: Place) -> None:
        self.places[who] = place
        self.say("go", who=who, place=place)

    def new_person(self) -> Person:
        """One whose name nobody has yet."""
        names = {person.name for person in self.people}
        while (person := self.words.person(self.random)).name in names:
            pass
        self.people.append(person)
        return person

    def new_spot(self) -> Spot:
        """One that was not mentioned before, so that what is said of it stays true."""
        while (spot := self.words.spot(self.random)) in self._mentioned:
            pass
        self._mentioned.add(spot)
        return spot

    def _lay(self, thing: Thing, spot: Spot) -> None:
        self.holders.pop(thing, None)
        self.spots[thing] = spot
        self.first_spots.setdefault(thing, spot)

    def _fresh(self, templates: list[str]) -> str:
        """One that was not used yet, or else any."""
        template = self.random.choice([t for t in templates if t not in self._used] or templates)
        self._used.add(template)
        return template

    def _subject_form(self, who: Person) -> str:
        """The name, or a pronoun (in Japanese nothing) where the last sentence was about the same person."""
        repeated = who is self._subject and self.random.random() < 0.6
        if self.words.english:
            return who.they if repeated else who.name
        return "" if repeated else f"{who}は"

    def _object_form(self, thing: Thing) -> str:
        repeated = thing is self._object and self.random.random() < 0.4
        if self.words.english:
            return "it" if repeated else thing.the
        return "それを" if repeated else f"{thing}を"

    def _add(self, sentence: str) -> None:
        start = 1 if sentence.startswith('"') else 0
        self.sentences.append(sentence[:start] + capitalised(sentence[start:]))
