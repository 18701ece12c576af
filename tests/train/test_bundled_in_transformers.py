"""The bundled models in Hugging Face Transformers, from the installed package. Needs PyTorch: scripts/check train."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import tiny_llm_models
from tiny_llm_models import BUNDLED, bundled
from tiny_llm_models.evaluation import exact_matches, exams
from tiny_llm_models.storyteller import LANGUAGES
from tiny_llm_models.training.card import tables
from tiny_llm_ref.models import load


@pytest.fixture
def device() -> None:
    """The comparisons are with the CPU's arithmetic."""


def test_the_package_is_the_installed_one():
    assert "site-packages" in Path(tiny_llm_models.__file__).parts


@pytest.mark.parametrize("name", BUNDLED)
def test_scores_and_answers_are_those_of_transformers(name: str):
    ours, _ = load(name, mx.float32)
    tokenizer = Tokenizer.from_file(str(bundled(name) / "tokenizer.json"))
    theirs = AutoModelForCausalLM.from_pretrained(bundled(name), dtype=torch.float32)
    for language in LANGUAGES:
        for made in exams(tokenizer, language, "short", 3):
            ids, answer = (tokenizer.encode(text).ids for text in (made.prompt, f"{made.question.answer}<|im_end|>"))
            prompt = torch.tensor([ids])
            with torch.no_grad():
                expected = theirs(prompt).logits.numpy()
            np.testing.assert_allclose(np.array(ours(mx.array([ids]))), expected, atol=1e-3)
            [told] = theirs.generate(prompt, max_new_tokens=30, do_sample=False).tolist()
            [right] = exact_matches(ours, tokenizer, [made])
            assert (told[len(ids) :] == answer) == right


@pytest.mark.parametrize("name", BUNDLED)
def test_the_tokenizer_is_that_of_transformers(name: str):
    _, ours = load(name)
    theirs = AutoTokenizer.from_pretrained(bundled(name))
    text = "Once upon a time… むかしむかし、あるところに 🐢 1,234\n"
    assert ours.encode(text) == theirs.encode(text)
    chat = [{"role": "user", "content": text}, {"role": "assistant", "content": "?"}, {"role": "user", "content": text}]
    tokens = theirs.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert list(ours.apply_chat_template(chat, add_generation_prompt=True)) == tokens
    assert theirs.decode(theirs.encode(text)) == text


@pytest.mark.parametrize("name", BUNDLED)
def test_the_cards_show_the_figures(name: str):
    figures = json.loads((bundled(name) / "evaluation.json").read_text(encoding="utf-8"))
    for language, file in enumerate(("README.md", "README.ja.md")):
        card = (bundled(name) / file).read_text(encoding="utf-8")
        for table in tables(figures, language).values():
            assert table in card
