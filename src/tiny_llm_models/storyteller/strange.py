"""Invented names, and things that are unknown or invented. Only documents with questions use these words. They teach a
model to copy any word."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from random import Random

from .lexicon import Entity, Lexicon

__all__ = ["SPLITS", "held_out", "strange", "unknown"]

SPLITS = ("train", "test")
_UNSPEAKABLE = re.compile(r"([aiou])\1|(.)\2\2|ンー")
_INVENTED = 0.7  # in training, the share of names that are invented
_INVENTED_THINGS = 0.5  # in training, the share of things that are invented
_LONGER = 0.3  # the share of invented things that begin with a known word, as くまで begins with くま
_HIRAGANA = {katakana: katakana - 0x60 for katakana in range(ord("ァ"), ord("ヶ") + 1)}


def held_out(word: str) -> bool:
    """Tell whether an invented name or an unknown thing is kept for tests. One in six of these words is kept."""
    return zlib.crc32(word.encode()) % 6 == 0


def strange(lexicon: Lexicon, random: Random, split: str) -> Callable[[Entity], Entity]:
    """Return a function for `telling.tell` that gives persons invented names, and that replaces things with unknown
    or invented things, which can have any colour.

    split: "train" or "test". The two splits have different words, and only "train" has invented things. With
    "test", once all unknown things are used, the remaining things stay as they are.
    """
    if split not in SPLITS:
        raise ValueError(f"expected one of {SPLITS}, got {split!r}")
    used: set[str] = set()

    def new(make: Callable[[], str]) -> str:
        words = (make() for _ in range(1000))
        word = next(word for word in words if held_out(word) == (split == "test") and word not in used)
        used.add(word)
        return word

    def recast(entity: Entity) -> Entity:
        words = dict(entity.words)
        if entity["name"] and (split == "test" or random.random() < _INVENTED):
            words["name"] = new(lambda: _name(lexicon, random, words["gender"]))
        elif entity.sort == "thing":
            nouns = [noun for noun in unknown(lexicon, split) if noun not in used]
            if split == "train" and (random.random() < _INVENTED_THINGS or not nouns):
                words["noun"] = new(lambda: _noun(lexicon, random))
            elif nouns:
                words["noun"] = new(lambda: random.choice(nouns))
            else:
                return entity
            words["look"] = random.choice(list(lexicon.colours))
            words["colour"] = lexicon.colours[words["look"]]
        return Entity(entity.sort, words)

    return recast


def unknown(lexicon: Lexicon, split: str) -> list[str]:
    """Return the nouns of this split's unknown things."""
    return [noun for noun in lexicon.strange["nouns"] if held_out(noun) == (split == "test")]


def _name(lexicon: Lexicon, random: Random, gender: str) -> str:
    while True:
        start, middle, end = (random.choice(lexicon.strange[part]) for part in ("starts", "middles", gender))
        name = f"{start}{middle if random.random() < 0.7 else ''}{end}"
        if not _UNSPEAKABLE.search(name) and name not in lexicon.gender_of:
            return name


def _noun(lexicon: Lexicon, random: Random) -> str:
    """Invent a noun: a made-up word, or a known word with a made-up ending."""
    known = [lexeme.key for lexeme in lexicon.lexemes]
    while True:
        made_up = _name(lexicon, random, random.choice(list(lexicon.genders))).lower().translate(_HIRAGANA)
        noun = random.choice(known) + made_up[-random.randint(1, 2) :] if random.random() < _LONGER else made_up
        if noun not in known:
            return noun
