"""The recordings of the reference's activations are fresh, and show where a model goes wrong."""

import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from activations import first_divergence, record

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import write_untrained
from tiny_llm_ref.kv_cache import NoCache
from tiny_llm_ref.models import load_model

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import record_activations  # noqa: E402

both = pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])


@both
def test_recordings_are_fresh(model_type):
    stored = np.load(ROOT / f"tests/fixtures/activations_{model_type}.npz")
    fresh = record_activations.recorded(model_type)
    assert stored.files == list(fresh), "run: python scripts/record_activations.py"
    for name in stored.files:
        if stored[name].dtype == np.float32:
            np.testing.assert_allclose(stored[name], fresh[name], rtol=1e-4, atol=1e-4, err_msg=name)
        else:
            assert np.array_equal(stored[name], fresh[name]), name


@pytest.fixture
def model(model_type, tmp_path):
    config = record_activations.CONFIGS[model_type]
    write_untrained(tmp_path, config, expected_shapes(ModelConfig.from_hf(config)), record_activations.SEED)
    return load_model(tmp_path)


def where(model, model_type):
    seen = record(model, mx.array(record_activations.TOKENS), NoCache(len(model.layers)))
    recording = np.load(ROOT / f"tests/fixtures/activations_{model_type}.npz")
    expected = {name: recording[name] for name in recording.files if name not in ("config", "seed", "tokens")}
    return first_divergence(expected, seen, tolerance=1e-3)


@both
def test_a_right_model_diverges_nowhere(model, model_type):
    assert where(model, model_type) is None
    assert where(model, model_type) is None, "the recorders are to be taken out again"


class Wrong:
    """A part of a model whose channels are a little too small or too large."""

    def __init__(self, part):
        self.part = part

    def __call__(self, *args):
        out = self.part(*args)
        return out * mx.linspace(0.8, 1.2, out.shape[-1])

    def __getattr__(self, attribute):
        return getattr(self.part, attribute)


@both
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("embed_tokens", "embedding"),
        ("layers.0.input_layernorm", "layer 0: input norm"),
        ("layers.1.self_attn.q_proj", "layer 1: q projection"),
        ("layers.1.self_attn.k_proj", "layer 1: k projection"),
        ("layers.0.self_attn.v_proj", "layer 0: v projection"),
        ("layers.0.self_attn.o_proj", "layer 0: attention output"),
        ("layers.1.post_attention_layernorm", "layer 1: norm after attention"),
        ("layers.1.mlp.gate_proj", "layer 1: MLP gate"),
        ("layers.0.mlp.up_proj", "layer 0: MLP up"),
        ("layers.0.mlp.down_proj", "layer 0: MLP output"),
        ("norm", "final norm"),
    ],
)
def test_the_first_part_that_is_wrong_is_named(model, model_type, path, name):
    *owners, attribute = path.split(".")
    owner = model
    for step in owners:
        owner = owner[int(step)] if step.isdigit() else getattr(owner, step)
    setattr(owner, attribute, Wrong(getattr(owner, attribute)))
    assert where(model, model_type).startswith(f"{name}: largest error")


@both
def test_a_wrong_rope_is_seen_where_attention_begins(model, model_type):
    rope = model.layers[1].self_attn.rope
    model.layers[1].self_attn.rope = lambda x, offset: -rope(x, 1) if x.shape[2] == 6 else rope(x, 1)  # the queries
    assert where(model, model_type).startswith("layer 1: q after rope")


@both
def test_a_wrong_attention_is_seen_behind_it(model, model_type):
    attention = model.layers[0].self_attn
    original = type(attention).__call__

    class Unscaled:
        def __init__(self, cache):
            self.cache, self.offset = cache, cache.offset

        def attend(self, query, key, value, scale=None):
            return self.cache.attend(query, key, value, 1.0)

    class Attention(type(attention)):
        def __call__(self, x, layer_cache):
            return original(self, x, Unscaled(layer_cache))

    attention.__class__ = Attention
    assert where(model, model_type).startswith("layer 0: heads after attention")
