"""How good a model is, as numbers: answers about held-out stories, perplexity, agreement of two models.

A model is anything that maps tokens, B x L, to scores, B x L x V: the course's models, quantised ones, a learner's own.
The held-out stories use names, things and pairs of words that no training story has (`stories.words.held_out`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice
from math import exp
from random import Random
from typing import Any

import mlx.core as mx
import numpy as np

from .hf_format import END, TURN_END
from .stories import Question, Story, Words, ask, question_prompt, tell_long_story, tell_story

__all__ = [
    "Exam",
    "agreement",
    "exact_matches",
    "exam",
    "held_out_stories",
    "last_mentioned_score",
    "majority_score",
    "perplexity",
]

Model = Callable[[mx.array], mx.array]

# How often each kind of question is asked.
KINDS = {"where": 8, "first": 3, "holder": 3, "person": 3, "content": 2, "colour": 1}
LENGTHS = {"short": (0, 200), "long": (850, 950)}  # tokens of the prompt: story, question, chat template
_EASY_KEPT = 0.15  # of the questions that the last place in the story answers, so that this is no way to pass
_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Exam:
    """One question about one story."""

    prompt: list[int]  # tokens, up to where the answer begins
    answer: list[int]  # tokens, with the one that ends it
    question: Question
    alone: list[int]  # the prompt's tokens without the story


def exam(tokenizer: Any, language: str, length: str, count: int, split: str = "test") -> list[Exam]:
    """This many questions, each about a story of its own, always the same ones.

    tokenizer: with `encode` and `apply_chat_template`.
    length: a key of LENGTHS.
    """
    return list(islice(_exams(tokenizer, language, length, split), count))


def exact_matches(model: Model, exams: Sequence[Exam], alone: bool = False) -> list[bool]:
    """Whether greedy decoding writes exactly the answer to each question, and ends there.

    It does if and only if each token of the answer has the highest score after those before it: one forward pass.
    alone: leave the stories out of the prompts.
    """
    prompts = [made.alone if alone else made.prompt for made in exams]
    results = [False] * len(exams)
    for batch in _batches([prompt + made.answer for prompt, made in zip(prompts, exams, strict=True)]):
        best = np.array(mx.argmax(model(batch.tokens), axis=-1))
        for row, i in enumerate(batch.rows):
            start, answer = len(prompts[i]) - 1, exams[i].answer
            results[i] = best[row, start : start + len(answer)].tolist() == answer
    return results


def last_mentioned_score(exams: Sequence[Exam]) -> float:
    """How often the last place that the story mentions is the answer, of the questions that ask for a place."""
    places = [made.question for made in exams if made.question.last_mentioned]
    return sum(question.last_mentioned == question.answer for question in places) / len(places)


def majority_score(exams: Sequence[Exam]) -> float:
    """How often one would be right who knows, for each question, what is most often the answer to its like.

    That is more than can be guessed from the question: the most frequent value is taken from these very answers.
    """
    values = [(made.question.kind, made.question.value) for made in exams]
    most = {kind: Counter(v for k, v in values if k == kind).most_common(1)[0][1] for kind in {k for k, _ in values}}
    return sum(most.values()) / len(exams)


def held_out_stories(tokenizer: Any, language: str, count: int) -> list[list[int]]:
    """The tokens of held-out stories, each with the one that ends a text."""
    words, end = Words(language, "test"), tokenizer.convert_tokens_to_ids(END)
    stories = (tell_story(words, Random(f"held-out {language} {i}")) for i in range(count))
    return [[*tokenizer.encode(story.text), end] for story in stories]


def perplexity(model: Model, texts: Sequence[list[int]]) -> float:
    """exp of the mean negative log likelihood, in nats, of each token after the first."""
    total, tokens = 0.0, 0.0
    for batch in _batches(texts):
        scores = model(batch.tokens[:, :-1]).astype(mx.float32)
        scores = scores - mx.logsumexp(scores, axis=-1, keepdims=True)
        chosen = mx.take_along_axis(scores, batch.tokens[:, 1:, None], axis=-1)[..., 0]
        total -= _sum(chosen * batch.counted[:, 1:])
        tokens += _sum(batch.counted[:, 1:])
    return exp(total / tokens)


def agreement(one: Model, other: Model, texts: Sequence[list[int]]) -> float:
    """The share of positions at which both models would choose the same next token."""
    same, tokens = 0.0, 0.0
    for batch in _batches(texts):
        equal = mx.argmax(one(batch.tokens), axis=-1) == mx.argmax(other(batch.tokens), axis=-1)
        counted = batch.counted[:, 1:]  # no choice follows the last token
        same += _sum(equal[:, :-1] * counted)
        tokens += _sum(counted)
    return same / tokens


def _exams(tokenizer: Any, language: str, length: str, split: str) -> Iterator[Exam]:
    words, (low, high) = Words(language, split), LENGTHS[length]
    for index in numbers():
        random = Random(f"exam {split} {language} {length} {index}")
        kind = random.choices(list(KINDS), list(KINDS.values()))[0]
        story = _exam_story(words, random, length)
        if not (questions := ask(story, random, 1, (kind,))):
            continue
        if questions[0].last_mentioned == questions[0].answer and random.random() > _EASY_KEPT:
            continue
        made = _exam(tokenizer, story, questions[0])
        if low <= len(made.prompt) <= high:
            yield made


def _exam_story(words: Words, random: Random, length: str) -> Story:
    if length == "long":
        return tell_long_story(words, random, random.randint(48, 72))
    if random.random() < 0.5:
        return tell_story(words, random, random.random() < 0.7)
    return tell_long_story(words, random, random.randint(8, 14))


def _exam(tokenizer: Any, story: Story, question: Question) -> Exam:
    def prompt(text: str) -> list[int]:
        message = [{"role": "user", "content": text}]
        return list(tokenizer.apply_chat_template(message, add_generation_prompt=True))

    answer = list(tokenizer.encode(f"{question.answer}{TURN_END}"))
    return Exam(prompt(question_prompt(story.text, question.text)), answer, question, prompt(question.text))


def _sum(values: mx.array) -> float:
    return float(np.array(values.sum()))


@dataclass(frozen=True)
class _Batch:
    rows: list[int]  # the texts' numbers
    tokens: mx.array  # B, L
    counted: mx.array  # B, L: 1 for a token, 0 for the filling behind a text, which no token before it sees


def _batches(texts: Sequence[list[int]]) -> Iterator[_Batch]:
    """The texts, sorted by their lengths, as many at a time as fit."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    while order:
        longest = len(texts[order[-1]])
        rows = [order.pop() for _ in range(min(len(order), max(1, _BATCH_TOKENS // longest)))]
        tokens = mx.array([texts[i] + [0] * (longest - len(texts[i])) for i in rows])
        lengths = mx.array([[len(texts[i])] for i in rows])
        yield _Batch(rows, tokens, (mx.arange(longest)[None] < lengths).astype(mx.float32))
