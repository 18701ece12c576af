"""Invented names and unknown things. Only documents with questions use these words. They teach a model to copy any
word."""

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


def held_out(word: str) -> bool:
    """Tell whether an invented name or an unknown thing is kept for tests. One in six of these words is kept."""
    return zlib.crc32(word.encode()) % 6 == 0


def strange(lexicon: Lexicon, random: Random, split: str) -> Callable[[Entity], Entity]:
    """Return a function for `telling.tell` that gives persons invented names, and that replaces things with unknown
    things.

    An unknown thing can have any colour. Once all unknown things are used, the remaining things are not replaced.
    split: "train" or "test". The two splits have different words.
    """
    if split not in SPLITS:
        raise ValueError(f"expected one of {SPLITS}, got {split!r}")
    used: set[str] = set()

    def recast(entity: Entity) -> Entity:
        words = dict(entity.words)
        if entity["name"] and (split == "test" or random.random() < _INVENTED):
            names = (_name(lexicon, random, words["gender"]) for _ in range(1000))
            words["name"] = next(name for name in names if held_out(name) == (split == "test") and name not in used)
            used.add(words["name"])
        elif entity.sort == "thing" and (nouns := [noun for noun in unknown(lexicon, split) if noun not in used]):
            words["noun"] = random.choice(nouns)
            used.add(words["noun"])
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
