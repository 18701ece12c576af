"""A story that has been told or read: its text, plot, cast and state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from .grammar import Line, Plot, slots
from .lexicon import Entity, Lexicon
from .world import World

__all__ = ["Naming", "Story", "TextLine", "sentence_spans", "starts_sentence"]

_START = re.compile(r'(?:^|[.!?] )"?$')
_ENGLISH = re.compile(r"""[.!?]+"?(?= ["A-Z]|\s*$)""")
# A quotation is a sentence, unless a particle after it makes it part of a longer sentence: 「…」と言いました。
_JAPANESE = re.compile(r"[。！？]+|」(?!と(?!ころ|ても|うとう|つぜん)|って|[、。！？」])")


def starts_sentence(text: str) -> bool:
    """Tell whether a new sentence begins after this text, which is the beginning of a line."""
    return bool(_START.search(text[-3:] if len(text) > 3 else text))


def sentence_spans(text: str, language: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence. The last sentence may be incomplete. Speech in 「」 is not divided."""
    spans, start = [], 0
    for match in (_ENGLISH if language == "english" else _JAPANESE).finditer(text):
        quoted = text.count("「", start, match.end()) > text.count("」", start, match.end())
        if language == "english" or not quoted:
            spans.append((start, match.end()))
            start = match.end() + len(text[match.end() :]) - len(text[match.end() :].lstrip())
    if start < len(text):
        spans.append((start, len(text)))
    return spans


class Naming(NamedTuple):
    """A mention of a person, thing or place in a line."""

    role: str
    form: str  # "": the word is dropped
    clear: bool  # whether a pronoun would be clear here


@dataclass(frozen=True)
class TextLine:
    """A line of a told story, and the state after this line."""

    text: str
    world: World
    source: str = ""  # the author's text
    named: tuple[Naming, ...] = ()


@dataclass(frozen=True)
class Story:
    """A story.

    cast: the entity of each role; roles that the story left out are missing. ended: whether the story is complete.
    """

    lexicon: Lexicon
    plot: Plot
    cast: Mapping[str, Entity]
    lines: tuple[TextLine, ...]
    choices: tuple[int, ...] = ()  # the indices of the teller's choices, in order
    ended: bool = True

    @property
    def text(self) -> str:
        """Return the whole text of the story."""
        return self.lexicon.space.join(line.text for line in self.lines)

    @cached_property
    def sentences(self) -> list[str]:
        """Return the sentences, in order."""
        return [sentence for sentence, _ in self._sentences()]

    @cached_property
    def states(self) -> list[World]:
        """Return the state after each sentence. The effects of a line hold after its last sentence."""
        return [world for _, world in self._sentences()]

    @property
    def world(self) -> World:
        """Return the state at the end of the story."""
        return self.lines[-1].world

    def history(self, role: str) -> list[str]:
        """Return the places of a person or thing, and the persons who had the thing, in order."""
        found: list[str] = []
        for line in self.lines:
            where = line.world.where(role)
            if where and found[-1:] != [where]:
                found.append(where)
        return found

    def roles(self, sort: str) -> list[str]:
        """Return the roles of one sort that the story names."""
        return [role for role, entity in self.cast.items() if entity.sort == sort]

    def suits(self, *lines: Line) -> bool:
        """Tell whether these lines can be said about the story.

        The lines' conditions must hold at the end of the story, and the story must have their roles.
        """
        roles = {slot.role for line in lines for slot in slots(line.text) if not slot.group}
        return roles <= self.cast.keys() and not any(self.world.unmet(line) for line in lines)

    def until(self, count: int) -> Story:
        """Return the story's first `count` lines, as a story that stops early."""
        lines = self.lines[:count]
        named = {each.role for line in lines for each in line.named}
        cast = {role: entity for role, entity in self.cast.items() if role in named}
        return replace(self, cast=cast, lines=lines, ended=False)

    def _sentences(self) -> list[tuple[str, World]]:
        found, before = [], World()
        for line in self.lines:
            spans = sentence_spans(line.text, self.lexicon.language)
            worlds = [before] * (len(spans) - 1) + [line.world]
            found += [(line.text[start:end], world) for (start, end), world in zip(spans, worlds, strict=True)]
            before = line.world
        return found
