"""The figures that rate a model, on models whose figures are known."""

from __future__ import annotations

from functools import cache
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from tokenizers import Tokenizer

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models import bundled
from tiny_llm_models.evaluation import (
    KINDS,
    LENGTHS,
    Exam,
    Model,
    agreement,
    exact_matches,
    exams,
    held_out_stories,
    perplexity,
)
from tiny_llm_models.storyteller import LANGUAGES, lexicon
from tiny_llm_models.storyteller.reading import read
from tiny_llm_models.storyteller.strange import held_out
from tiny_llm_models.untrained import untrained_config, write_untrained
from tiny_llm_ref.models import load_model

CASES = [(language, length) for language in LANGUAGES for length in LENGTHS]


device = pytest.fixture(lambda: None)  # the answers are counted on the default device


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(bundled("story") / "tokenizer.json"))


@cache
def some_exams(language: str, length: str, count: int = 24) -> list[Exam]:
    return exams(tokenizer(), language, length, count)


def encoded(exam: Exam, *, alone: bool = False) -> list[int]:
    prompt = exam.alone if alone else exam.prompt
    return tokenizer().encode(prompt).ids + tokenizer().encode(f"{exam.question.answer}<|im_end|>").ids


def knows(texts: list[list[int]], wrong: frozenset[int] = frozenset()) -> Model:
    """Return a model that knows how these texts go on, but gets the last token of the texts in `wrong` wrong."""

    def model(tokens: mx.array) -> mx.array:
        logits = np.zeros((*tokens.shape, 4096), dtype=np.float32)
        for row, given in enumerate(np.array(tokens).tolist()):
            i = next(i for i, text in enumerate(texts) if given[: len(text)] == text)
            for position, token in enumerate(texts[i][1:]):
                last = position == len(texts[i]) - 2
                logits[row, position, (token + 1) % 4096 if last and i in wrong else token] = 1
        return mx.array(logits)

    return model


@pytest.mark.parametrize(("language", "length"), CASES)
def test_exact_matches(language: str, length: str):
    made = some_exams(language, length)
    texts = [encoded(exam) for exam in made]
    assert exact_matches(knows(texts), tokenizer(), made) == [True] * len(made)
    wrong = frozenset({0, 7, len(made) - 1})  # these do not end where they should
    assert exact_matches(knows(texts, wrong), tokenizer(), made) == [i not in wrong for i in range(len(made))]


def test_exact_matches_without_the_story():
    made = some_exams("english", "short")
    model = knows([encoded(exam, alone=True) for exam in made])
    assert exact_matches(model, tokenizer(), made, alone=True) == [True] * len(made)


@pytest.mark.parametrize(("language", "length"), CASES)
def test_prompts_are_as_long_as_they_say(language: str, length: str):
    low, high = LENGTHS[length]
    for exam in some_exams(language, length):
        assert low <= len(tokenizer().encode(exam.prompt).ids) == exam.tokens <= high
        assert exam.prompt.startswith("<|im_start|>user\n")
        assert exam.prompt.endswith(f"\n\n{exam.question.text}<|im_end|>\n<|im_start|>assistant\n")
        assert exam.alone == f"<|im_start|>user\n{exam.question.text}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_differ(language: str):
    made = some_exams(language, "short", 200)
    assert len({exam.prompt for exam in made}) == 200
    assert {exam.question.kind for exam in made} == set(KINDS)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_last_place_of_several_stories_is_seldom_the_answer(language: str):
    questions = [exam.question for exam in some_exams(language, "long", 60) if exam.question.last_mentioned]
    assert len(questions) > 15
    assert sum(question.last_mentioned == question.answer for question in questions) / len(questions) <= 0.4


def test_perplexity_and_agreement(tmp_path: Path):
    config = untrained_config(vocab_size=4096)
    shapes = expected_shapes(ModelConfig.from_hf(config))
    one, other = (load_untrained(tmp_path / str(seed), config, shapes, seed) for seed in (0, 1))
    texts = [Random(i).choices(range(4096), k=length) for i, length in enumerate([5, 90, 33, 2])]
    nats, same, count = 0.0, 0, 0
    for text in texts:  # one at a time, without padding, in float64
        logits, others = (np.array(model(mx.array([text])), dtype=np.float64)[0] for model in (one, other))
        logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        nats -= sum(logprobs[i, token] for i, token in enumerate(text[1:]))
        same += int((logits.argmax(-1) == others.argmax(-1))[:-1].sum())
        count += len(text) - 1
    assert perplexity(one, texts) == pytest.approx(exp(nats / count), rel=1e-4)
    assert agreement(one, other, texts) == pytest.approx(same / count)
    assert agreement(one, one, texts) == 1


def load_untrained(path: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...]], seed: int) -> Model:
    write_untrained(path, config, shapes, seed)
    return load_model(path)


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_without_an_answer(language: str):
    for exam in exams(tokenizer(), language, "short", 20, {"unsaid": 1}):
        assert exam.question.answer == exam.unsaid == lexicon(language).questions["unsaid"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_held_out_stories_are_right_and_end(language: str):
    stories = held_out_stories(language, 5)
    assert len(set(stories)) == 5
    for story in stories:
        assert story.endswith("<|endoftext|>")
        assert read(lexicon(language), story.removesuffix("<|endoftext|>")).right


def test_names_of_the_exams_are_held_out():
    """No training text contains them: in training texts, invented names come from the other five sixths."""
    names = {word for exam in some_exams("english", "short") for word in exam.prompt.replace(".", " ").split()}
    assert sum(held_out(name) and name.istitle() and name not in lexicon("english").gender_of for name in names) > 10
