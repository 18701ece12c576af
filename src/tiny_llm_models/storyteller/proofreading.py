"""Proofreads a story to find mistakes in its plot."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .lexicon import WORD, Lexicon
from .reading import read
from .story import Story, TextLine, sentence_spans
from .world import World

__all__ = ["proofread"]

_ODD = {
    "english": re.compile(r"\ba [aeiou]\w*|\ban [^aeiou\W]\w*|  |(?<!\w)' | [.,!?]|[^\x20-\x7e]|[.!?] [a-z]"),
    "japanese": re.compile(r"[\x20-\x7e]|、、|。。|、。"),
}


def proofread(story: Story) -> Iterator[str]:
    """Yield the problems that the plot's author should fix, each with the author's line."""
    seen, before, clean = set[str](), World(), True
    for line in story.lines:
        for problem in (*_introductions(story, line, seen), *_pronouns(story, line), *_moves(story, line, before)):
            clean = False
            yield f"{problem}, in {line.source!r}"
        yield from (f"{problem}, in {line.source!r}" for problem in _typography(story, line))
        seen |= {each.role for each in line.named}
        before = line.world
    if clean:
        yield from _checked(story)


def _introductions(story: Story, line: TextLine, seen: set[str]) -> Iterator[str]:
    introducing = story.lexicon.introducing
    for role in sorted({each.role for each in line.named} - seen):
        introduced = any(each.role == role and each.form in introducing for each in line.named)
        if role in story.cast and story.cast[role].sort in ("person", "thing") and not introduced:
            yield f"{role} is named before it is introduced by one of {sorted(introducing)}"


def _pronouns(story: Story, line: TextLine) -> Iterator[str]:
    for role, form, clear in line.named:
        if form and not clear and role in story.cast and _is_pronoun(story.lexicon, story.cast[role].sort, form):
            yield f"{{{role}.{form}}} could mean another person: give it a long form, as in {{{role}/{form}}}"


def _is_pronoun(lexicon: Lexicon, sort: str, form: str) -> bool:
    pronouns = {word for words in lexicon.genders.values() for word in words} | {"it"}
    return all({match[1] for match in WORD.finditer(pattern)} <= pronouns for pattern in lexicon.patterns(sort, form))


def _moves(story: Story, line: TextLine, before: World) -> Iterator[str]:
    """Yield a problem for each thing that changes hands in a line that does not say who had the thing."""
    people = story.roles("person")
    for what, where in sorted(line.world.facts - before.facts):
        was = before.where(what)
        if was in people and where in people and " > " not in line.source:
            yield f"{what} changes hands: write '-> {what}: {was} > {where}'"


def _typography(story: Story, line: TextLine) -> Iterator[str]:
    if line.text[-1:] not in set('.!?"。！？」'):
        yield f"expected the end of a sentence, got {line.text[-20:]!r}"
    if line.text.count('"') % 2 or line.text.count("「") != line.text.count("」"):
        yield "expected as many closing as opening quotation marks"
    if odd := _ODD[story.lexicon.language].search(line.text):
        yield f"odd text {odd[0]!r}"


def _checked(story: Story) -> Iterator[str]:
    """Yield the first fault that the checker finds. The checker should accept every story."""
    sources = [line.source for line in story.lines for _ in sentence_spans(line.text, story.lexicon.language)]
    for fault in read(story.lexicon, story.text, [story.plot]).faults[:1]:
        yield f"the checker finds {fault.kind} (such as: {fault.explanation}), in {sources[fault.sentence]!r}"
