"""Questions about held-out stories, and how many a model answers exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice
from random import Random
from typing import Any

from tokenizers import Tokenizer

from ..hf_format import TURN_END
from ..storyteller import Lexicon, Story, lexicon
from ..storyteller.documents import question_prompt, tell_several
from ..storyteller.questions import Question, ask
from ..storyteller.strange import strange
from .sampling import GREEDY, Sampler

__all__ = ["KINDS", "LENGTHS", "Exam", "answers", "chat_prompt", "exams", "share"]

# How often each kind of question is asked; "unsaid" are the questions that a story does not answer.
KINDS = {"where": 8, "first": 3, "holder": 3, "person": 3, "content": 2, "colour": 1, "plot": 4}
LENGTHS = {"short": (0, 200), "long": (850, 950)}  # tokens of the prompt: stories, question, chat template
_EASY_KEPT = 0.15  # of the questions that the last place in the story answers, so that this is no way to pass
_STOPPED = {"short": 0.8, "long": 0.4}  # the share of stories that stop before their end, with things in any place
_ANSWER = 48  # tokens


@dataclass(frozen=True)
class Exam:
    """One question about stories of its own. alone: the prompt without the stories. unsaid: the answer to a question
    that a story does not answer."""

    prompt: str
    question: Question
    alone: str
    unsaid: str
    tokens: int  # of the prompt


def exams(tokenizer: Tokenizer, language: str, length: str, count: int, kinds: Mapping[str, int] = KINDS) -> list[Exam]:
    """This many questions about held-out names and things, always the same ones.

    length: a key of LENGTHS. kinds: how often each kind of question is asked.
    """
    return list(islice(_exams(tokenizer, lexicon(language), length, kinds), count))


def answers(sampler: Sampler, made: Sequence[Exam]) -> dict[str, Any]:
    """How many answers are exactly right, by kind too, and how many say that the story does not say."""
    written = sampler.continued([exam.prompt for exam in made], GREEDY, _ANSWER)
    alone = sampler.continued([exam.alone for exam in made], GREEDY, _ANSWER)
    questions = [exam.question for exam in made]
    right: dict[str, list[bool]] = defaultdict(list)
    for exam, (text, ended) in zip(made, written, strict=True):
        right[exam.question.kind].append(ended and text == exam.question.answer)
    together = [each for some in right.values() for each in some]
    return {
        "questions": len(made),
        "tokens": round(sum(exam.tokens for exam in made) / len(made)),
        "right": share(together),
        "does not say": share([text == exam.unsaid for exam, (text, _) in zip(made, written, strict=True)]),
        "right without the stories": share(
            [text == exam.question.answer for exam, (text, _) in zip(made, alone, strict=True)]
        ),
        "last place": share([each.last_mentioned == each.answer for each in questions if each.last_mentioned]),
        "by kind": {kind: {"questions": len(some), "right": share(some)} for kind, some in sorted(right.items())},
        "wrong": [
            f"{exam.question.text} – {text} ({exam.question.answer})"
            for exam, (text, _) in zip(made, written, strict=True)
            if text != exam.question.answer
        ][:10],
    }


def chat_prompt(said: str) -> str:
    """What a model reads before it answers, as the chat template writes it."""
    return f"<|im_start|>user\n{said}{TURN_END}\n<|im_start|>assistant\n"


def share(outcomes: Sequence[bool]) -> float:
    """Of these, how many came out true, from 0 to 1."""
    return round(sum(outcomes) / len(outcomes), 4) if outcomes else 0.0


def _exams(tokenizer: Tokenizer, words: Lexicon, length: str, kinds: Mapping[str, int]) -> Iterator[Exam]:
    low, high = LENGTHS[length]
    for index in numbers():
        random = Random(f"exam {words.language} {length} {sorted(kinds)} {index}")
        kind = random.choices(list(kinds), list(kinds.values()))[0]
        recast = strange(words, random, "test")
        stories = [
            _stopped(story, random, length) for story in tell_several(words, random, _stories(random, length), recast)
        ]
        if not (questions := ask(stories, random, 1, (kind,), recast=recast)):
            continue
        [question] = questions
        if question.last_mentioned == question.answer and random.random() > _EASY_KEPT:
            continue
        text = words.space.join(story.text for story in stories)
        prompt = chat_prompt(question_prompt(text, question.text))
        tokens = len(tokenizer.encode(prompt).ids)
        if low <= tokens <= high:
            yield Exam(prompt, question, chat_prompt(question.text), words.questions["unsaid"], tokens)


def _stories(random: Random, length: str) -> int:
    return 1 if length == "short" else random.randint(4, 7)


def _stopped(story: Story, random: Random, length: str) -> Story:
    """The story, or its beginning."""
    if random.random() > _STOPPED[length]:
        return story
    return story.until(random.randint(min(4, len(story.lines)), len(story.lines)))
