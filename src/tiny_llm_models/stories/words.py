"""The words of the stories: names, things, spots and places, each with the forms that sentences need."""

from __future__ import annotations

import re
import sys
import zlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["LANGUAGES", "Person", "Place", "Spot", "Thing", "Words", "capitalised", "held_out"]

LANGUAGES = ("english", "japanese")
_UNSPEAKABLE = re.compile(r"([aiou])\1|(.)\2\2|ンー")


def held_out(word: str) -> bool:
    """Whether a name, a noun or a pair of words is kept out of the training stories: one in six, by its checksum."""
    return zlib.crc32(word.encode()) % 6 == 0


def capitalised(text: str) -> str:
    """With its first letter as it begins a sentence; the others stay as they are."""
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Person:
    """Somebody with a name, such as "Mia" in "a clever girl named Mia"."""

    name: str
    kind: str  # "girl"
    a: str  # "a clever girl"
    female: bool

    def __str__(self) -> str:
        return self.name

    @property
    def they(self) -> str:
        return "she" if self.female else "he"

    @property
    def them(self) -> str:
        return "her" if self.female else "him"

    @property
    def their(self) -> str:
        return "her" if self.female else "his"


@dataclass(frozen=True)
class Thing:
    """What is put, given and looked for, such as "the key"."""

    a: str  # "a small red key"
    the: str  # "the key"
    noun: str
    colour: str

    def __str__(self) -> str:
        return self.the

    @property
    def The(self) -> str:  # noqa: N802 (the form that begins a sentence)
        return capitalised(self.the)


@dataclass(frozen=True)
class Spot:
    """Where a thing can be, such as "under the old bed"."""

    at: str
    look_and_noun: str  # "old bed"; "" where nothing is said of its look
    off: str = ""  # "from under the old bed"
    put: str = ""  # Japanese: which verb fits, in the past, and in the form before another verb
    put_and: str = ""

    def __str__(self) -> str:
        return self.at


@dataclass(frozen=True)
class Place:
    """Where a person can be, such as "in the garden"."""

    at: str
    to: str = ""  # "to the garden"

    def __str__(self) -> str:
        return self.at


class Words:
    """One language's words and sentences, drawn at random from those for training or from those held out."""

    def __init__(self, language: str, split: str):
        if language not in LANGUAGES or split not in ("train", "test"):
            raise ValueError(f"expected one of {LANGUAGES} and 'train' or 'test', got {language!r} and {split!r}")
        self.english = language == "english"
        self.split = split
        self._lexicon = _lexicon(language)
        self.sentences: dict[str, list[str]] = self._lexicon["sentences"]
        self.scenery: dict[str, list[str]] = self._lexicon["scenery"]
        self.questions: dict[str, dict[str, Any]] = self._lexicon["questions"]
        self.chat: dict[str, Any] = self._lexicon["chat"]
        self._colours: list[str] = self._lexicon["things"]["colours"]
        self._looks: list[str] = self._lexicon["spots"]["looks"]
        self._relations = [name for name in self._lexicon["spots"] if name != "looks"]
        self._places = [(relation, noun) for relation, nouns in self._lexicon["places"].items() for noun in nouns]
        self.nouns = [noun for noun in self._lexicon["things"]["nouns"] if self._drawn(noun)]

    def person(self, random: Random) -> Person:
        female = random.random() < 0.5
        kinds = self._lexicon["kinds"]
        # half of the people are girls and boys, the others animals and the like
        options = kinds["girl" if female else "boy"]
        kind = options[0] if random.random() < 0.5 else random.choice(options)
        trait = random.choice(kinds["traits"]) if random.random() < 0.4 else ""
        return Person(self._name(random, female), kind, self._noun_phrase(trait, kind), female)

    def things(self, random: Random, count: int) -> list[Thing]:
        """Things to tell apart: by their nouns, or, where two are of one kind, by their colours."""
        nouns = random.sample(self.nouns, count)
        colours = [random.randrange(len(self._colours)) for _ in nouns]
        alike = count > 1 and random.random() < 0.1
        if alike:
            nouns[1] = nouns[0]
            colours[:2] = random.sample(range(len(self._colours)), 2)
        return [
            self._thing(random, noun, colour, alike and i < 2)
            for i, (noun, colour) in enumerate(zip(nouns, colours, strict=True))
        ]

    def spot(self, random: Random) -> Spot:
        while True:
            relation = random.choice(self._relations)
            noun = random.choice(self._lexicon["spots"][relation])
            look = random.choice(self._looks) if self.split == "test" or random.random() < 0.7 else ""
            if not look or self._drawn(f"{look} {noun}"):
                return self._spot(relation, look, noun)

    def place(self, random: Random) -> Place:
        relation, noun = random.choice(self._places)
        return Place(f"{relation} the {noun}", f"to the {noun}") if self.english else Place(noun)

    def _drawn(self, word: str) -> bool:
        return held_out(word) == (self.split == "test")

    def _name(self, random: Random, female: bool) -> str:
        """A known name, or one made of syllables, of which there are thousands."""
        names = self._lexicon["names"]
        known: list[str] = names["girls" if female else "boys"]
        parts = [names["starts"], names["middles"], names["girl_ends" if female else "boy_ends"]]
        while True:
            if random.random() < 0.3:
                name = random.choice(known)
            else:
                start, middle, end = (random.choice(part) for part in parts)
                name = f"{start}{middle if random.random() < 0.7 else ''}{end}"
            if self._drawn(name) and not _UNSPEAKABLE.search(name):
                return name

    def _noun_phrase(self, adjectives: str, noun: str) -> str:
        if not self.english:
            return adjectives + noun
        phrase = f"{adjectives} {noun}".strip()
        return f"{'an' if phrase[0] in 'aeiou' or phrase.startswith('hour') else 'a'} {phrase}"

    def _thing(self, random: Random, noun: str, colour: int, alike: bool) -> Thing:
        size = random.choice(self._lexicon["things"]["sizes"]) if random.random() < 0.4 else ""
        colour_word = self._colours[colour]
        if not self.english:
            name = colour_word + noun if alike else noun
            return Thing(size + colour_word + noun, name, noun, self._lexicon["things"]["colour_names"][colour])
        phrase = self._noun_phrase(f"{size} {colour_word}".strip(), noun)
        return Thing(phrase, f"the {colour_word} {noun}" if alike else f"the {noun}", noun, colour_word)

    def _spot(self, relation: str, look: str, noun: str) -> Spot:
        pair = f"{look} {noun}" if look else ""
        if self.english:
            name = f"the {look} {noun}" if look else f"the {noun}"
            off = {"in": "out of", "on": "from"}.get(relation, f"from {relation}")
            return Spot(f"{relation} {name}", pair, f"{off} {name}")
        put = self._lexicon["put"]
        return Spot(f"{look}{noun}の{relation}", pair, "", *put.get(relation, put["else"]))


@cache
def _lexicon(language: str) -> dict[str, dict[str, Any]]:
    """The language's file. A text with words in it, in its tables of words, stands for the list of them."""
    lexicon = tomllib.loads(files(__package__).joinpath(f"{language}.toml").read_text(encoding="utf-8"))
    for name in ("names", "things", "spots", "places"):
        lexicon[name] = {
            key: words.split() if isinstance(words, str) else words for key, words in lexicon[name].items()
        }
    return lexicon
