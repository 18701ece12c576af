"""The reference against the results of Hugging Face Transformers that scripts/record_transformers.py recorded."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from oracle_cases import MARGIN, TOLERANCE, Case

from tiny_llm_ref.generate import generate_simple
from tiny_llm_ref.models import load
from tiny_llm_ref.sampler import greedy

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="module", params=["qwen2", "qwen3"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return a fixture's contents, and the reference's model and tokenizer for the same checkpoint."""
    contents: dict[str, Any] = dict(np.load(FIXTURES / f"transformers_{request.param}.npz"))
    case = Case(json.loads(str(contents["config"])), int(contents["seed"]))
    model, tokenizer = load(case.write(tmp_path_factory.mktemp(request.param)))
    return SimpleNamespace(**contents, name=request.param, case=case, model=model, tokenizer=tokenizer)


def test_weights_are_those_that_were_recorded(recorded: SimpleNamespace):
    assert recorded.case.config["model_type"] == recorded.name
    assert recorded.case.fingerprint() == recorded.fingerprint, (
        "untrained.random_weights no longer gives the weights that Transformers had: "
        f"record again with {recorded.command} ({recorded.versions})"
    )


def test_scores_are_those_of_transformers(recorded: SimpleNamespace):
    scores = np.array(recorded.model(mx.array(recorded.tokens)))
    assert scores.shape == recorded.logits.shape
    assert np.abs(scores - recorded.logits).max() < TOLERANCE


def test_greedy_tokens_are_those_of_transformers(recorded: SimpleNamespace):
    tokens = list(generate_simple(recorded.model, recorded.prompt.tolist(), greedy, max_tokens=64))
    assert tokens == recorded.greedy.tolist()
    assert len(tokens) == 64
    assert len(set(tokens)) >= 16
    assert recorded.margin > MARGIN


def test_tokenizer_is_that_of_transformers(recorded: SimpleNamespace):
    assert recorded.tokenizer.encode(str(recorded.text)) == recorded.ids.tolist()
    assert recorded.tokenizer.decode(recorded.ids.tolist()) == recorded.text


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("transformers_*.npz")), ids=lambda path: path.stem)
def test_fixtures_are_small(path: Path):
    assert path.stat().st_size < 150_000
