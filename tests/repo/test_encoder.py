"""From documents to the tokens that the bundled models are trained on."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tokenizers import Tokenizer

from tiny_llm_models import bundled
from tiny_llm_models.stories import Document, Mix, document
from tiny_llm_models.train.data import Encoder

PIECES = [("Mia has a lamp.", 1.0), (" Where is the lamp?", 0.0), (" Mia has the lamp.", 3.0)]


@pytest.fixture
def device() -> None:
    """Nothing is computed on one."""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(bundled("story") / "tokenizer.json"))


@pytest.mark.parametrize("index", range(8))
def test_without_subjects_the_tokens_are_the_tokenizers(tokenizer: Tokenizer, index: int):
    made = document("train", index, Mix(long=0))
    ids, weights = Encoder(tokenizer).encode(Document(made.pieces, []), Random(0))
    assert ids == tokenizer.encode(made.text).ids
    assert len(weights) == len(ids)
    assert set(weights) <= {weight for _, weight in made.pieces}


def test_subjects_are_spelled_anew_in_each_document(tokenizer: Tokenizer):
    """Each time in the same way, and without weight where they stand first."""
    encoder, random, kinds = Encoder(tokenizer), Random(0), Counter()
    plain = [list(pair) for pair in zip(*encoder.encode(Document(PIECES, []), random), strict=True)]
    [lamp] = tokenizer.encode(" lamp").ids
    at = [i for i, (token, _) in enumerate(plain) if token == lamp]
    for _ in range(2000):
        ids, weights = encoder.encode(Document(PIECES, ["lamp"]), random)
        length = (len(ids) - len(plain)) // len(at) + 1  # of the spelling
        spelled = []
        for i, place in enumerate(at):
            start = place + i * (length - 1)
            spelled.append(ids[start : start + length])
            expected = plain[place][1] if i or ids[start] == lamp else 0
            assert weights[start : start + length] == [expected] * length
        assert spelled[0] == spelled[1] == spelled[2]
        others = [list(pair) for i, pair in enumerate(zip(ids, weights, strict=True)) if not _inside(i, at, length)]
        assert others == [pair for i, pair in enumerate(plain) if i not in at]
        kinds[_kind(tokenizer, spelled[0])] += 1
    assert kinds["whole"] == pytest.approx(600, abs=100)
    assert kinds["cut"] == pytest.approx(700, abs=100)
    assert kinds["drawn by lot"] == pytest.approx(700, abs=100)


def test_all_subjects_of_a_document_are_spelled(tokenizer: Tokenizer):
    """The training text knows them by other tokens than the tokenizer's more often than not."""
    encoder, random = Encoder(tokenizer), Random(0)
    documents = [made for made in (document("train", index, Mix(long=0)) for index in range(60)) if made.subjects]
    changed = [encoder.encode(made, random)[0] != tokenizer.encode(made.text).ids for made in documents]
    assert len(documents) > 30
    assert sum(changed) / len(changed) > 0.8


def _inside(i: int, at: list[int], length: int) -> bool:
    starts = [place + k * (length - 1) for k, place in enumerate(at)]
    return any(start <= i < start + length for start in starts)


def _kind(tokenizer: Tokenizer, tokens: list[int]) -> str:
    if tokenizer.decode(tokens) != " lamp":
        return "drawn by lot"
    return "whole" if len(tokens) == 1 else "cut"
