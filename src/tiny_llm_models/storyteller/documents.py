"""The training documents: stories, requests for stories, and conversations about stories, in both languages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from ..hf_format import END, TURN_END
from .lexicon import LANGUAGES, Entity, Lexicon, lexicon
from .questions import ask
from .requests import request
from .scenes import furnished
from .story import Story
from .strange import strange
from .telling import scene, tell
from .wishes import Wish

__all__ = ["Document", "Mix", "document", "only_story", "question_prompt", "tell_several"]

_GAPS = ("\n\n", "\n")  # between a story and a question; half of the documents have the blank line
_OPENING = 2  # the fewest sentences in an opening; the opening decides the story's plot
_SHORT = 0.25  # the share of stories that are told without optional lines
_AMID = 0.2  # the share of documents with only a story that begin amid the story, as a user's text may
_CARELESS = 0.3  # the share of greetings that lack their last mark


@dataclass(frozen=True)
class Document:
    """A training document: pieces of text, each with the weight of its tokens in the loss."""

    pieces: list[tuple[str, float]]
    subjects: list[str]  # the names and nouns that questions may ask about; empty if the document has no questions
    named: list[str] = field(default_factory=list)  # the words for the persons and things of a story to learn

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


@dataclass(frozen=True)
class Mix:
    """The mixture of documents. All shares are from 0 to 1.

    long: the share of documents with 2 to `stories` stories in a row.
    shares: the shares of the other documents, keyed by kind. The remaining documents have questions.
    strange: of the documents with questions, the share that has invented names and unknown things.
    stopped: of the stories in documents with questions, the share that stops early. When such a story
    stops, a thing may be in any of its places.
    told: of the documents with questions about ordinary, complete stories, the share in which the model learns to tell
    the stories.
    scenes: the share of scenes among the stories.
    questions: at most this many questions are asked about the stories of a document.
    gaps: how rare questions are, keyed by kind, as in `ask`.
    """

    long: float = 0
    stories: int = 5
    shares: Mapping[str, float] = field(default_factory=lambda: {"story": 0.2, "request": 0.4, "talk": 0.01})
    strange: float = 0.6
    stopped: float = 0.4
    told: float = 0.6
    scenes: float = 0
    questions: int = 8
    gaps: Mapping[str, int] = field(default_factory=lambda: {"where": 1, "unsaid": 4})


def document(split: str, index: int, mix: Mix) -> Document:
    """Return the document with this number. The same arguments give the same document. split: "train" or "test"."""
    words = lexicon(LANGUAGES[index % len(LANGUAGES)])
    random = Random(f"{split} {index}")
    if random.random() < mix.long:
        return _questions(words, random, split, mix, random.randint(2, mix.stories))
    kind = random.choices([*mix.shares, "questions"], [*mix.shares.values(), 1 - sum(mix.shares.values())])[0]
    if kind == "story":
        story = tell(words, random, Wish(short=random.random() < _SHORT))
        amid = random.random() < _AMID
        return only_story(story, random.randint(1, len(story.sentences) // 2) if amid else 0)
    if kind == "talk":
        said, answer = random.choice(words.chat["talk"])
        if random.random() < _CARELESS:
            said = said.rstrip(".!?。！？")
        return Document(_turn([(said, 0)], (answer, 1)), [])
    if kind == "request":
        return _request(words, random, mix)
    return _questions(words, random, split, mix, 1)


def only_story(story: Story, start: int = 0) -> Document:
    """Return a document from which the model learns to tell this story. start: the index of its first sentence."""
    return Document([(story.lexicon.space.join(story.sentences[start:]) + END, 1)], [], _named(story))


def question_prompt(story: str, question: str, gap: str = _GAPS[0]) -> str:
    """Return the user's message with a story and a question about it."""
    return f"{story}{gap}{question}"


def tell_several(
    words: Lexicon, random: Random, count: int, recast: Callable[[Entity], Entity] | None = None, scenes: float = 0
) -> list[Story]:
    """Tell up to `count` stories that have no person and no thing in common.

    Tell fewer stories if the lexicon has too few words. recast: as in `tell`. scenes: the share of scenes.
    """
    stories: list[Story] = []
    for _ in range(count):
        taken = [entity for story in stories for entity in story.cast.values()]
        try:
            if random.random() < scenes:
                stories.append(scene(words, random, taken, furnished(words, random, recast)))
            else:
                stories.append(tell(words, random, Wish(short=random.random() < _SHORT), taken, recast))
        except ValueError:
            if not stories:
                raise
            break
    return stories


def _turn(said: list[tuple[str, float]], *answer: tuple[str, float]) -> list[tuple[str, float]]:
    """Return the user's message and the answer in the chat template, as pieces of text with weights."""
    *pieces, (last, weight) = answer
    return [
        ("<|im_start|>user\n", 0),
        *said,
        (f"{TURN_END}\n<|im_start|>assistant\n", 0),
        *pieces,
        (f"{last}{TURN_END}", weight),
        ("\n", 0),
    ]


def _request(words: Lexicon, random: Random, mix: Mix) -> Document:
    """Return a document with a request and a story that fulfils it. Half of these documents also have questions."""
    asked = request(words, random)
    story = asked.story
    opening = _opening(story)
    pieces = _turn([(asked.text, 0)], (opening, 5), (story.text.removeprefix(opening), 1))
    if random.random() < 0.5:
        for question in ask([story], random, random.randint(1, 4), gaps=mix.gaps):
            pieces += _turn([(question.text, 0)], (question.answer, 4))
    return Document(pieces, [], _named(story))


def _named(story: Story) -> list[str]:
    """Return the names, nouns and looks of a story's entities. If these words are right, most of the story is right."""
    entities = story.cast.values()
    return " ".join(entity[word] for entity in entities for word in ("name", "kind", "look", "noun")).split()


def _opening(story: Story) -> str:
    """Return a story's first sentences, at least `_OPENING` of them. The opening ends where the tokenizer splits the
    text, too, so never between 。 and 「."""
    space, sentences = story.lexicon.space, story.sentences
    cuts = (n for n in range(_OPENING, len(sentences)) if space or sentences[n][0].isalnum())
    return space.join(sentences[: next(cuts, len(sentences))])


def _questions(words: Lexicon, random: Random, split: str, mix: Mix, count: int) -> Document:
    """Return a conversation about stories. The first message contains the stories and a question; each of
    the user's later messages contains another question."""
    unknown = split == "test" or random.random() < mix.strange
    recast = strange(words, random, split) if unknown else None
    stories = [
        story.until(random.randint(min(4, len(story.lines) - 1), len(story.lines) - 1))
        if random.random() < mix.stopped
        else story
        for story in tell_several(words, random, count, recast, mix.scenes)
    ]
    whole = not unknown and all(story.ended for story in stories)
    weight = float(whole and random.random() < mix.told)
    gap = random.choice([_GAPS[0], random.choice([*_GAPS, words.space])])
    text, pieces = words.space.join(story.text for story in stories), list[tuple[str, float]]()
    for i, question in enumerate(ask(stories, random, mix.questions, gaps=mix.gaps, recast=recast)):
        told, said = (text, question_prompt("", question.text, gap)) if i == 0 else ("", question.text)
        pieces += _turn([(told, weight), (said, 0)], (question.answer, 6))
    return Document(pieces, _subjects(stories))


def _subjects(stories: Sequence[Story]) -> list[str]:
    entities = [entity for story in stories for entity in story.cast.values() if entity.sort in ("person", "thing")]
    return [entity["name"] or entity["noun"] for entity in entities if entity["name"] or entity["noun"]]
