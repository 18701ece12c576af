"""A story that has been told or read: its text, and what is known about it."""

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
# A quotation is a sentence, unless a particle after it makes it a part of one: 「…」と言いました。
_JAPANESE = re.compile(r"[。！？]+|」(?!と(?!ころ|ても|うとう|つぜん)|って|[、。！？」])")


def starts_sentence(text: str) -> bool:
    """Tell whether a new sentence begins after this text, the beginning of a line."""
    return bool(_START.search(text[-3:] if len(text) > 3 else text))


def sentence_spans(text: str, language: str) -> list[tuple[int, int]]:
    """Return where each sentence begins and ends; the last one need not be complete. Speech in 「」 is not divided."""
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
    """Somebody or something is named in a line."""

    role: str
    form: str  # "": nothing stands for it
    clear: bool  # whether a pronoun would do in this place


@dataclass(frozen=True)
class TextLine:
    """A line of a story as it was told, and the state after it."""

    text: str
    world: World
    source: str = ""  # as the author wrote it
    named: tuple[Naming, ...] = ()


@dataclass(frozen=True)
class Story:
    """A story.

    cast: who and what plays each role; roles that the story left out are missing. ended: whether it is complete.
    """

    lexicon: Lexicon
    plot: Plot
    cast: Mapping[str, Entity]
    lines: tuple[TextLine, ...]
    choices: tuple[int, ...] = ()  # what the teller chose, one number after the other
    ended: bool = True

    @property
    def text(self) -> str:
        """The whole story."""
        return self.lexicon.space.join(line.text for line in self.lines)

    @cached_property
    def sentences(self) -> list[str]:
        """The sentences, in order."""
        return [sentence for sentence, _ in self._sentences()]

    @cached_property
    def states(self) -> list[World]:
        """The state after each sentence. What a line of several sentences changes holds after the last of them."""
        return [world for _, world in self._sentences()]

    @property
    def world(self) -> World:
        """The state at the end."""
        return self.lines[-1].world

    def history(self, role: str) -> list[str]:
        """Return where a person or a thing was, one place after the other, or who had it."""
        found: list[str] = []
        for line in self.lines:
            where = line.world.where(role)
            if where and found[-1:] != [where]:
                found.append(where)
        return found

    def roles(self, sort: str) -> list[str]:
        """The roles of one sort that were named in the story."""
        return [role for role, entity in self.cast.items() if entity.sort == sort]

    def suits(self, *lines: Line) -> bool:
        """Tell whether one can say these lines about the story: their conditions hold at its end, and it has their
        roles."""
        roles = {slot.role for line in lines for slot in slots(line.text) if not slot.group}
        return roles <= self.cast.keys() and not any(self.world.unmet(line) for line in lines)

    def until(self, count: int) -> Story:
        """The story's first lines, as a story that just stops."""
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
