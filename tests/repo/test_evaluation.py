"""The figures that say how good a model is, on models whose figures are known."""

from __future__ import annotations

from functools import cache
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.tokenizer_utils import load as load_tokenizer

from tiny_llm_models import bundled, evaluation, free_stories
from tiny_llm_models.evaluation import Exam, Model
from tiny_llm_models.stories import LANGUAGES
from tiny_llm_models.untrained import untrained_config, write_untrained
from tiny_llm_ref.config import ModelConfig
from tiny_llm_ref.models import load_model
from tiny_llm_ref.weights import expected_shapes

V = 4096
CASES = [(language, length) for language in LANGUAGES for length in evaluation.LENGTHS]


@pytest.fixture
def device() -> None:
    """The figures are made on the default device."""


@cache
def tokenizer() -> Any:
    return load_tokenizer(bundled("story"))


@cache
def exams(language: str, length: str, count: int = 40) -> list[Exam]:
    return evaluation.exam(tokenizer(), language, length, count)


def knows(texts: list[list[int]], wrong: frozenset[int] = frozenset()) -> Model:
    """A model that knows how these texts go on, and cannot tell the last token of some."""

    def model(tokens: mx.array) -> mx.array:
        scores = np.zeros((*tokens.shape, V), dtype=np.float32)
        for row, given in enumerate(np.array(tokens).tolist()):
            i = next(i for i, text in enumerate(texts) if given[: len(text)] == text)
            for position, token in enumerate(texts[i][1:]):
                last = position == len(texts[i]) - 2
                scores[row, position, (token + 1) % V if last and i in wrong else token] = 1
        return mx.array(scores)

    return model


@pytest.mark.parametrize(("language", "length"), CASES)
def test_exact_matches(language: str, length: str):
    made = exams(language, length)
    texts = [exam.prompt + exam.answer for exam in made]
    assert evaluation.exact_matches(knows(texts), made) == [True] * len(made)
    wrong = frozenset({0, 7, len(made) - 1})  # these do not end where they should
    assert evaluation.exact_matches(knows(texts, wrong), made) == [i not in wrong for i in range(len(made))]


def test_exact_matches_without_the_story():
    made = exams("english", "short")
    assert evaluation.exact_matches(knows([exam.alone + exam.answer for exam in made]), made, alone=True) == [True] * 40


@pytest.mark.parametrize(("language", "length"), CASES)
def test_prompts_are_as_long_as_they_say(language: str, length: str):
    low, high = evaluation.LENGTHS[length]
    for exam in exams(language, length):
        assert low <= len(exam.prompt) <= high
        said = tokenizer().decode(exam.prompt)
        assert said.startswith("<|im_start|>user\n")
        assert said.endswith(f"\n\n{exam.question.text}<|im_end|>\n<|im_start|>assistant\n")
        assert tokenizer().decode(exam.answer) == exam.question.answer + "<|im_end|>"
        assert len(exam.alone) < 40


@pytest.mark.parametrize(("language", "length"), CASES)
def test_the_questions_need_the_story(language: str, length: str):
    made = exams(language, length, 500)
    assert len({tuple(exam.prompt) for exam in made}) == 500
    assert evaluation.last_mentioned_score(made) <= 0.4
    assert evaluation.majority_score(made) <= 0.15
    assert {exam.question.kind for exam in made} == set(evaluation.KINDS)


def test_perplexity_and_agreement(tmp_path: Path):
    config = untrained_config(vocab_size=V)
    shapes = expected_shapes(ModelConfig.from_hf(config))
    one, other = (load_untrained(tmp_path / str(seed), config, shapes, seed) for seed in (0, 1))
    texts = [Random(i).choices(range(V), k=length) for i, length in enumerate([5, 90, 33, 2])]
    nats, same, tokens = 0.0, 0, 0
    for text in texts:  # one at a time, without filling, in float64
        scores, others = (np.array(model(mx.array([text])), dtype=np.float64)[0] for model in (one, other))
        logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        nats -= sum(logs[i, token] for i, token in enumerate(text[1:]))
        same += int((scores.argmax(-1) == others.argmax(-1))[:-1].sum())
        tokens += len(text) - 1
    assert evaluation.perplexity(one, texts) == pytest.approx(exp(nats / tokens), rel=1e-4)
    assert evaluation.agreement(one, other, texts) == pytest.approx(same / tokens)
    assert evaluation.agreement(one, one, texts) == 1


def load_untrained(path: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...]], seed: int) -> Model:
    write_untrained(path, config, shapes, seed)
    return load_model(path)


def test_held_out_stories_end():
    for language in LANGUAGES:
        texts = evaluation.held_out_stories(tokenizer(), language, 5)
        assert len({tuple(text) for text in texts}) == 5
        assert all(tokenizer().decode(text[-1:]) == "<|endoftext|>" for text in texts)


def test_distinct_bigrams():
    assert free_stories.distinct_between([[1, 2, 3], [1, 2, 3]]) == 0
    assert free_stories.distinct_between([[1, 2, 3], [4, 5, 6]]) == 1
    assert free_stories.distinct_between([[1, 2, 3], [1, 2, 4, 5]]) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert free_stories.distinct_pooled([[1, 2, 3], [1, 2, 4, 5]]) == pytest.approx(4 / 5)


def test_copies():
    random = Random(0)
    training = [random.choices(range(50), k=length) for length in (300, 7, 200)]
    copies = free_stories.Copies(training, 20)
    assert copies.found([1, 2, *training[0][100:120], 3])
    assert not copies.found([1, 2, *training[0][100:119], 99, *training[2][5:24]])
    assert not copies.found(training[1])  # too short to be one
    assert not copies.found([*training[0][-10:], *training[2][:9]])


def test_starts():
    for language, tale in (("english", "Once upon a time"), ("japanese", "むかしむかし")):
        starts = free_stories.starts(language, 10)
        assert starts[:5] == [tale] * 5
        assert len(set(starts[5:])) == 5
        assert all(start.startswith(tale) and len(start) > len(tale) for start in starts[5:])
