"""The bundled models: complete, small, as good as their cards say, and the same in mlx-lm."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
import verdicts
from bundled_answers import compare_answers
from oracle_cases import TEXT
from tokenizers import Tokenizer

from tiny_llm_given.weights import load_weights
from tiny_llm_models import BUNDLED, bundled
from tiny_llm_models.evaluation import exams
from tiny_llm_models.storyteller import LANGUAGES
from tiny_llm_ref.generate import generate
from tiny_llm_ref.kv_cache import KVCache
from tiny_llm_ref.models import load, resolve
from tiny_llm_ref.qwen2 import CausalLM
from tiny_llm_ref.sampler import greedy

FILES = {
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"),
    *("README.md", "README.ja.md", "evaluation.json", "training.jsonl", "loss.svg", "origin.toml"),
}
PARAMETERS = {"story": (5e6, 6e6), "story-draft": (0.5e6, 1e6), "story-qwen2": (1e6, 2e6)}


device = pytest.fixture(lambda: None)  # the comparisons are with the CPU's arithmetic


@cache
def loaded(name: str) -> tuple[CausalLM, Any]:
    return load(name, mx.float32)


@cache
def tokenizer_of(name: str) -> Tokenizer:
    return Tokenizer.from_file(str(bundled(name) / "tokenizer.json"))


@cache
def figures(name: str) -> dict[str, Any]:
    return json.loads((bundled(name) / "evaluation.json").read_text(encoding="utf-8"))


def test_together_they_are_small():
    files = [path for name in BUNDLED for path in bundled(name).iterdir()]
    assert sum(path.stat().st_size for path in files) < 20e6


@pytest.mark.parametrize("name", BUNDLED)
def test_all_files_are_there(name: str):
    folder = resolve(name)
    assert folder == bundled(name)
    assert {path.name for path in folder.iterdir()} == FILES
    low, high = PARAMETERS[name]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    parameters = sum(weight.size for weight in load_weights(folder, loaded(name)[0].config).values())
    assert low <= parameters <= high
    assert parameters == figures(name)["parameters"]
    assert config["max_position_embeddings"] == 1024
    assert config["vocab_size"] == 4096


@pytest.mark.parametrize("name", BUNDLED)
def test_the_card_is_of_these_weights(name: str):
    assert figures(name)["weights"] == hashlib.sha256((bundled(name) / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("name", BUNDLED)
def test_tokenizer_loses_nothing(name: str):
    _, tokenizer = loaded(name)
    tokens = tokenizer.encode(TEXT)
    assert tokenizer.decode(tokens) == TEXT
    assert tokens == loaded("story")[1].encode(TEXT)


def test_the_reference_answers_as_the_card_says():
    verdicts.unless_known("models", compare_answers)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", BUNDLED)
def test_greedy_answers_are_those_of_mlx_lm(name: str, language: str):
    (model, _), tokenizer = loaded(name), tokenizer_of(name)
    theirs, their_tokenizer = mlx_lm.load(str(bundled(name)))
    theirs.set_dtype(mx.float32)
    for made in exams(tokenizer, language, "short", 3):
        prompt = tokenizer.encode(made.prompt).ids
        tokens = mx.array([prompt])
        assert mx.abs(model(tokens) - theirs(tokens)).max().item() < 1e-3
        steps = mlx_lm.stream_generate(theirs, their_tokenizer, prompt, max_tokens=30)
        expected = [step.token for step in steps]
        ends = model.config.eos_token_ids
        answer = list(generate(model, prompt, greedy, 30, ends, KVCache(len(model.layers))))
        assert answer == [token for token in expected if token not in ends]


@pytest.mark.parametrize("start", ["Once upon a time", "むかしむかし"])
def test_a_story_ends_by_itself(start: str):
    model, tokenizer = loaded("story")
    prompt, cache = tokenizer.encode(start), KVCache(len(model.layers))
    tokens = list(generate(model, prompt, greedy, 400, model.config.eos_token_ids, cache))
    assert 20 < len(tokens) < 400
    assert tokenizer.decode(tokens).rstrip()[-1] in '.!?。！？」"'
