"""Evaluation of a model: exact answers about held-out stories, perplexity, and the agreement of two models.

A model is any function from tokens (B x L) to logits (B x L x V): one of the course's models, a quantised model, or a
learner's. The questions are about names and things that appear in no training text (`storyteller.strange`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice
from math import exp
from random import Random
from typing import TypeAlias

import mlx.core as mx
import numpy as np
from tokenizers import Tokenizer

from .hf_format import END, TURN_END
from .storyteller import Lexicon, Story, lexicon, tell
from .storyteller.documents import question_prompt, tell_several
from .storyteller.questions import Question, ask
from .storyteller.strange import strange

__all__ = [
    "KINDS",
    "LENGTHS",
    "Exam",
    "Model",
    "agreement",
    "chat_prompt",
    "exact_matches",
    "exams",
    "held_out_stories",
    "perplexity",
]

Model: TypeAlias = Callable[[mx.array], mx.array]

# The relative frequency of each kind of question. "unsaid", whose questions no story answers, is not in this table.
KINDS = {"where": 8, "first": 3, "holder": 3, "person": 3, "content": 2, "colour": 1, "plot": 4}
LENGTHS = {"short": (0, 200), "long": (850, 950)}  # the fewest and the most tokens of a prompt
_EASY_KEPT = 0.15  # of the questions that the story's last place answers, this share is kept, to discourage guessing
_STOPPED = {"short": 0.8, "long": 0.4}  # the share of stories that stop early; a thing may then be in any of its places
_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Exam:
    """A question about stories.

    prompt: the stories and the question, in the chat template.
    alone: the same prompt without the stories.
    unsaid: the answer that counts as right if the stories do not answer a question.
    tokens: the length of the prompt in tokens.
    """

    prompt: str
    question: Question
    alone: str
    unsaid: str
    tokens: int


def exams(tokenizer: Tokenizer, language: str, length: str, count: int, kinds: Mapping[str, int] = KINDS) -> list[Exam]:
    """Return `count` questions about held-out names and things. The same arguments give the same questions.

    length: a key of LENGTHS. kinds: the relative frequency of each kind of question.
    """
    return list(islice(_exams(tokenizer, lexicon(language), length, kinds), count))


def chat_prompt(said: str) -> str:
    """Return the prompt for a user's message, in the chat template."""
    return f"<|im_start|>user\n{said}{TURN_END}\n<|im_start|>assistant\n"


def exact_matches(model: Model, tokenizer: Tokenizer, exams: Sequence[Exam], *, alone: bool = False) -> list[bool]:
    """Tell for each question whether greedy decoding gives exactly the right answer and then ends the turn.

    One forward pass over prompt and answer decides this: each token of the answer must have the highest logit at its
    position. alone: whether to ask without the stories.
    """
    prompts = [tokenizer.encode(exam.alone if alone else exam.prompt).ids for exam in exams]
    answers = [tokenizer.encode(exam.question.answer + TURN_END).ids for exam in exams]
    results = [False] * len(exams)
    for batch in _batches([prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]):
        best = np.array(mx.argmax(model(batch.tokens), axis=-1))
        for row, i in enumerate(batch.rows):
            start = len(prompts[i]) - 1
            results[i] = best[row, start : start + len(answers[i])].tolist() == answers[i]
    return results


def perplexity(model: Model, texts: Sequence[list[int]]) -> float:
    """Return the perplexity: exp of the mean negative log likelihood (in nats) of all tokens except each text's first.

    texts: token ids of each text.
    """
    total, count = 0.0, 0.0
    for batch in _batches(texts):
        logits = model(batch.tokens[:, :-1]).astype(mx.float32)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        chosen = mx.take_along_axis(logprobs, batch.tokens[:, 1:, None], axis=-1)[..., 0]
        total -= _sum(chosen * batch.counted[:, 1:])
        count += _sum(batch.counted[:, 1:])
    return exp(total / count)


def agreement(one: Model, other: Model, texts: Sequence[list[int]]) -> float:
    """Return the share of positions at which both models choose the same token greedily. texts: token ids of each
    text."""
    same, count = 0.0, 0.0
    for batch in _batches(texts):
        equal = mx.argmax(one(batch.tokens), axis=-1) == mx.argmax(other(batch.tokens), axis=-1)
        counted = batch.counted[:, 1:]  # leaves out the choice after the last token
        same += _sum(equal[:, :-1] * counted)
        count += _sum(counted)
    return same / count


def held_out_stories(language: str, count: int) -> list[str]:
    """Return stories told with seeds that training does not use. Each story ends with the end token."""
    return [tell(lexicon(language), Random(f"held-out {language} {index}")).text + END for index in range(count)]


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
    """Return the story or, with the probability in _STOPPED, only its beginning."""
    if random.random() > _STOPPED[length]:
        return story
    return story.until(random.randint(min(4, len(story.lines)), len(story.lines)))


def _sum(values: mx.array) -> float:
    return float(np.array(values.sum()))


@dataclass(frozen=True)
class _Batch:
    rows: list[int]  # the indices of the texts
    tokens: mx.array  # B x L
    counted: mx.array  # B x L: 1 for a token, 0 for padding after a text


def _batches(texts: Sequence[list[int]]) -> Iterator[_Batch]:
    """Yield batches of at most _BATCH_TOKENS tokens, the longest texts first."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    while order:
        longest = len(texts[order[-1]])
        rows = [order.pop() for _ in range(min(len(order), max(1, _BATCH_TOKENS // longest)))]
        tokens = mx.array([texts[i] + [0] * (longest - len(texts[i])) for i in rows])
        lengths = mx.array([[len(texts[i])] for i in rows])
        yield _Batch(rows, tokens, (mx.arange(longest)[None] < lengths).astype(mx.float32))
