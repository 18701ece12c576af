"""The weights that training starts from. Needs PyTorch: scripts/check train."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tiny_llm_models import BUNDLED
from tiny_llm_models.training.induction import write_induction_heads
from tiny_llm_models.training.recipes import CONTEXT, RECIPES, VOCAB_SIZE, Recipe


@pytest.fixture
def device() -> None:
    """PyTorch's is the CPU here."""


def new_model(recipe: Recipe) -> torch.nn.Module:
    torch.manual_seed(0)
    config = AutoConfig.for_model(recipe.model_type, **recipe.config())
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


@pytest.mark.parametrize("distance", [7, 40, 500])
@pytest.mark.parametrize("name", BUNDLED)
def test_a_token_finds_what_followed_it_before(name: str, distance: int):
    """At any distance that the context allows, among random tokens."""
    model = new_model(RECIPES[name])
    write_induction_heads(model, CONTEXT)
    tokens = torch.randint(VOCAB_SIZE, (2, distance), generator=torch.Generator().manual_seed(1)).repeat(1, 2)
    with torch.no_grad():
        previous, induction, *_ = model(tokens, output_attentions=True).attentions
    at = torch.arange(distance, 2 * distance - 1)
    assert previous[:, 0, at, at - 1].mean() > 0.6
    assert induction[:, 0, at, at - distance + 1].mean() > 0.8


def test_a_model_that_is_too_small_is_refused():
    recipe = replace(RECIPES["story"], hidden_size=64)
    with pytest.raises(ValueError, match="expected two layers of at least 128 channels, got 6 of 64"):
        write_induction_heads(new_model(recipe), CONTEXT)
    recipe = replace(RECIPES["story"], layers=1)
    with pytest.raises(ValueError, match="expected two layers of at least 128 channels, got 1 of 256"):
        write_induction_heads(new_model(recipe), CONTEXT)
