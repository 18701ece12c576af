"""The training documents: stories, and conversations about stories, in both languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random

from ..hf_format import END, TURN_END
from .plots import tell_long_story, tell_story
from .questions import ask
from .telling import Story
from .words import LANGUAGES, Words

__all__ = ["Document", "Mix", "document", "question_prompt"]

_TOLD = 0.4  # of the stories that are asked about, the share whose text is to be learned; the questions teach reading

_words = cache(Words)


@dataclass(frozen=True)
class Document:
    """Pieces of text, and how much the model is to learn from the tokens of each."""

    pieces: list[tuple[str, float]]
    subjects: list[str]  # names and nouns that questions ask for; without questions, none

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


@dataclass(frozen=True)
class Mix:
    """What documents are about."""

    long: float  # the share of documents about a long story
    sentences: tuple[int, int] = (24, 56)  # of a long story
    questions: int = 12  # about each story, as far as it has answers
    gaps: Mapping[str, int] = field(default_factory=lambda: {"where": 1})  # by kind of question: see `ask`
    unending: float = _TOLD  # of the stories that just stop, the share whose text is to be learned


def document(split: str, index: int, mix: Mix) -> Document:
    """The document of this number, the same one each time."""
    words = _words(LANGUAGES[index % len(LANGUAGES)], split)
    random = Random(f"{split} {index}")
    if random.random() < mix.long:
        return _questions(random, tell_long_story(words, random, random.randint(*mix.sentences)), mix, mix.unending)
    kind = random.random()
    if kind < 0.25:
        story = tell_story(words, random, random.random() < 0.7)
        return Document([(story.text + END, 1)], [])
    if kind < 0.35:
        return _request(words, random)
    if kind < 0.36:
        return _talk(words, random)
    if kind < 0.7:
        return _questions(random, tell_story(words, random, random.random() < 0.7), mix, _TOLD)
    return _questions(random, tell_long_story(words, random, random.randint(5, 20)), mix, mix.unending)


def question_prompt(story: str, question: str) -> str:
    """What the user says who asks about a story."""
    return f"{story}\n\n{question}"


def _turn(said: list[tuple[str, float]], answer: str, weight: float) -> list[tuple[str, float]]:
    """What the user says and what is answered, as the chat template writes them."""
    return [
        ("<|im_start|>user\n", 0),
        *said,
        (f"{TURN_END}\n<|im_start|>assistant\n", 0),
        (f"{answer}{TURN_END}", weight),
        ("\n", 0),
    ]


def _talk(words: Words, random: Random) -> Document:
    question, answer = random.choice(words.chat["talk"])
    return Document(_turn([(question, 0)], answer, 1), [])


def _request(words: Words, random: Random) -> Document:
    story = tell_story(words, random, random.random() < 0.8)
    requests = words.chat["tell_about"] if random.random() < 0.6 else words.chat["tell"]
    request = random.choice(requests).format(who=story.people[0], thing=story.introduced[0])
    return Document(_turn([(request, 0)], story.text, 1), [])


def _questions(random: Random, story: Story, mix: Mix, told: float) -> Document:
    """A conversation: the first question comes with the story, others follow."""
    weight = float(random.random() < told)
    pieces: list[tuple[str, float]] = []
    for i, question in enumerate(ask(story, random, mix.questions, gaps=mix.gaps)):
        said = question_prompt("", question.text) if i == 0 else question.text
        pieces += _turn([(story.text if i == 0 else "", weight), (said, 0)], question.answer, 8)
    return Document(pieces, [person.name for person in story.people] + [thing.noun for thing in story.introduced])
