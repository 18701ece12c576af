"""Models with fast layers compute the plain models' results: `optimise` and `tune`, against dense float32 weights."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.linears import named_linears
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models import bundled
from tiny_llm_models.untrained import random_weights, untrained_config
from tiny_llm_ref.basics import Linear
from tiny_llm_ref.embedding import Embedding
from tiny_llm_ref.kernels.attention import flash_attention
from tiny_llm_ref.kv_cache import KVCache
from tiny_llm_ref.models import build_model, load_model
from tiny_llm_ref.optimise import KERNELS, optimise
from tiny_llm_ref.quantize import QuantizedEmbedding, QuantizedLinear, quantize_model
from tiny_llm_ref.tuned import tune

TOKENS = mx.array(np.random.RandomState(0).randint(0, 256, (1, 50)))
_WIDE = {"hidden_size": 192, "intermediate_size": 320, "num_attention_heads": 6, "num_key_value_heads": 2}
SIZES = {"wide": _WIDE, "narrow": _WIDE | {"hidden_size": 96}}
MODELS = ["story", "story-qwen2", "wide"]  # of the last, H_q * D is 384 and not E
GENEROUS = {mx.float32: 1e-4, mx.bfloat16: 0.02}  # root mean square of the error, relative to that of the logits
TUNED = 0.03  # if a processor has only fast products of 8-bit numbers, x is rounded to 8 bits


device = pytest.fixture(lambda: None)  # kernels choose their own


def build(name: str, dtype: mx.Dtype) -> Any:
    if name not in SIZES:
        return load_model(bundled(name), dtype)
    config = ModelConfig.from_hf(untrained_config("qwen3", vocab_size=272, head_dim=64, **SIZES[name]))
    weights = random_weights(expected_shapes(config))
    return build_model(config, {key: mx.array(weight).astype(dtype) for key, weight in weights.items()})


def with_bfloat16_weights(name: str) -> Any:
    """Build a model in float32 whose weights bfloat16 represents exactly."""
    model = build(name, mx.float32)
    for _, owner, part in named_linears(model):
        layer = getattr(owner, part)
        layer.weight = layer.weight.astype(mx.bfloat16).astype(mx.float32)
    model.embed_tokens.weight = model.embed_tokens.weight.astype(mx.bfloat16).astype(mx.float32)
    return model


def quantised(name: str, dtype: mx.Dtype = mx.bfloat16, bits: int = 4) -> Any:
    model = build(name, dtype)
    quantize_model(model, bits=bits)
    return model


def dense(layer: Any) -> Any:
    """Return the plain layer of week 1 in float32."""
    if isinstance(layer, QuantizedLinear | QuantizedEmbedding):
        scales, biases = layer.scales.astype(mx.float32), layer.biases.astype(mx.float32)
        weight = mx.dequantize(layer.packed, scales, biases, layer.group_size, layer.bits)
        if isinstance(layer, QuantizedEmbedding):
            return Embedding(*weight.shape, weight)
        return Linear(weight, layer.bias if layer.bias is None else layer.bias.astype(mx.float32))
    layer.weight = layer.weight.astype(mx.float32)
    return layer


def oracle(name: str, dtype: mx.Dtype = mx.bfloat16, bits: int = 4) -> np.ndarray:
    """Return the logits of the plain model with the same numbers, in float32."""
    model = quantised(name, dtype, bits)
    for block in model.layers:
        block.input_layernorm, block.post_attention_layernorm = map(
            dense, (block.input_layernorm, block.post_attention_layernorm)
        )
        for name in {"q_norm", "k_norm"} & vars(block.self_attn).keys():
            setattr(block.self_attn, name, dense(getattr(block.self_attn, name)))
    for _, owner, name in named_linears(model):
        setattr(owner, name, dense(getattr(owner, name)))
    model.norm, model.embed_tokens = dense(model.norm), dense(model.embed_tokens)
    return np.array(model(TOKENS))


def error(logits: mx.array, expected: np.ndarray) -> float:
    difference = np.array(logits.astype(mx.float32)) - expected
    return float(np.sqrt((difference**2).mean() / (expected**2).mean()))


def in_pieces(model: Any, *pieces: int) -> mx.array:
    """Return the logits of TOKENS, which the model reads piece by piece, with FlashAttention."""
    cache = KVCache(len(model.layers), attention=flash_attention)
    ends = np.cumsum(pieces)
    found = [model(TOKENS[:, end - length : end], cache) for end, length in zip(ends, pieces, strict=True)]
    return mx.concatenate(found, axis=1)


@pytest.mark.parametrize("name", MODELS)
def test_tuned_model(name):
    expected = oracle(name)
    model = quantised(name)
    tune(model)
    for pieces in ([50], [1, 8, 9, 32], [40, *[1] * 10]):
        logits = in_pieces(model, *pieces)
        assert logits.dtype == mx.bfloat16
        assert error(logits, expected) < TUNED


@pytest.mark.parametrize(("dtype", "largest"), [(mx.float32, 1e-5), (mx.bfloat16, 0.02)], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_tuned_model_that_is_not_quantised(name, dtype, largest):
    """The activations have this dtype. The weights are in bfloat16 both times."""
    expected = np.array(with_bfloat16_weights(name)(TOKENS))
    model = with_bfloat16_weights(name) if dtype == mx.float32 else build(name, dtype)
    tune(model)
    for pieces in ([50], [1, 2, 8, 39], [3, 4, 5, 6, 7, 25]):
        logits = in_pieces(model, *pieces)
        assert logits.dtype == dtype
        assert error(logits, expected) < largest


def test_weights_that_are_not_quantised_need_no_choice_of_arithmetic(monkeypatch):
    """Otherwise `--layers auto` would measure speeds, and compile kernels for that."""
    model = with_bfloat16_weights("story")
    for module in ("block", "packed"):
        monkeypatch.setattr(f"tiny_llm_native.matmul.{module}.flags", lambda: pytest.fail("an arithmetic was chosen"))
    tune(model)
    mx.eval(model(TOKENS))


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_optimised_model(name, dtype):
    model = quantised(name, dtype)
    optimise(model)
    for pieces in ([50], [1, 8, 9, 32]):
        logits = in_pieces(model, *pieces)
        assert logits.dtype == dtype
        assert error(logits, oracle(name, dtype)) < GENEROUS[dtype]


@pytest.mark.parametrize("kernels", [*[[name] for name in KERNELS], []], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_optimised_by_some_kernels(name, kernels):
    model = quantised(name, mx.float32, 8)
    optimise(model, kernels)
    assert error(model(TOKENS), oracle(name, mx.float32, 8)) < 1e-4


def test_optimised_dense_model():
    expected = np.array(build("story", mx.float32)(TOKENS))
    model = build("story", mx.float32)
    optimise(model)
    assert error(model(TOKENS), expected) < 1e-4


def test_tuned_batch():
    """Rows of a batch do not affect each other."""
    model = quantised("story")
    tune(model)
    alone = [model(tokens[None]) for tokens in TOKENS.reshape(5, 10)]
    together = model(TOKENS.reshape(5, 10))
    assert error(together, np.array(mx.concatenate(alone).astype(mx.float32))) < 5e-3


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: build("wide", mx.float32), r"expected weights that bfloat16 represents exactly, .* got .*float32"),
        (lambda: build("narrow", mx.bfloat16), "a multiple of 64 columns, got a matrix of .*96"),
        (lambda: quantised("story", bits=8), "expected 4 bits .* got 8 bits"),
        (lambda: quantised("story", mx.float32), "bfloat16 scales .* got .*float32"),
    ],
)
def test_what_cannot_be_tuned(model, said):
    model = model()
    layers = model.layers
    with pytest.raises(ValueError, match=said):
        tune(model)
    assert model.layers is layers  # as it was


def test_unknown_kernels_are_named():
    with pytest.raises(ValueError, match=r"expected some of quantized_matvec, .*, got flash, warp"):
        optimise(build("story", mx.float32), ["warp", "rope", "flash"])
