"""An engine with a drafter, and a small untrained model."""

from functools import cache

import mlx.core as mx
import numpy as np

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import random_weights, untrained_config
from tiny_llm_ref.models import build_model
from tiny_llm_ref.serving.draft_heads import DraftHeads
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.speculative import Speculative

__all__ = ["echo_heads", "model_of", "random_heads", "speculative"]


SMALL = 6  # tokens of a vocabulary


@cache
def model_of(seed, vocab_size=SMALL, layers=1, context=64):
    config = ModelConfig.from_hf(
        untrained_config(
            vocab_size=vocab_size, num_hidden_layers=layers, max_position_embeddings=context, eos_token_id=None
        )
    )
    weights = {name: mx.array(weight) for name, weight in random_weights(expected_shapes(config), seed).items()}
    for name in weights:
        if name.startswith("lm_head"):  # so that no token is certain
            weights[name] *= 0.4
    return build_model(config, weights)


def random_heads(hidden_size, count=4, width=3, seed=0):
    """Return draft heads that guess at random, but not always the same token."""
    draw = np.random.default_rng(seed).standard_normal
    return DraftHeads(
        {
            "eh_proj.weight": mx.array(draw((count * width, 2 * hidden_size)).astype(np.float32)),
            "out_proj.weight": mx.array(draw((count, hidden_size, width)).astype(np.float32)),
            "out_proj.bias": mx.array(draw((count, hidden_size)).astype(np.float32)),
        }
    )


def echo_heads(hidden_size, count=4):
    """Return draft heads that guess the newest token again: silu(x) - silu(-x) is x, so each head returns the vector
    from which the model chose that token."""
    one = np.eye(hidden_size, dtype=np.float32)
    both = np.concatenate([one, -one])
    return DraftHeads(
        {
            "eh_proj.weight": mx.array(np.tile(np.concatenate([np.zeros_like(both), both], axis=1), (count, 1))),
            "out_proj.weight": mx.array(np.stack([both.T] * count)),
            "out_proj.bias": mx.zeros((count, hidden_size)),
        }
    )


def speculative(model, scheduler, drafter, num_drafts=4, observers=(), is_checked=False):
    return Engine(model, scheduler, observers, is_checked, Speculative(drafter, num_drafts))
