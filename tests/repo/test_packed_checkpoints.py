"""Quantised checkpoints: dense and packed, with the results of mlx-lm, and the errors of broken checkpoints."""

import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import mlx_lm.utils
import pytest
from checkpoint_edits import INDEX, WEIGHTS, Change, check_error, delete, edit, edit_weights, folder, scores, shard
from oracle_cases import TOLERANCE, Case, random_tokens

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.linears import named_linears
from tiny_llm_given.weights import load_quantized_weights
from tiny_llm_models.untrained import untrained_config
from tiny_llm_ref.models import load_model, load_quantized, load_quantized_model
from tiny_llm_ref.quantize import QuantizedEmbedding, QuantizedLinear
from tiny_llm_ref.qwen2 import CausalLM

__all__ = ["folder"]


@pytest.fixture(scope="module")
def quantised_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("quantised")
    config = untrained_config(hidden_size=64, intermediate_size=96, head_dim=16)
    dense = Case(config, seed=0).write(parent / "dense")
    mlx_lm.convert(str(dense), parent / "mlx", quantize=True, q_group_size=32, q_bits=4, dtype="bfloat16")
    return parent / "mlx"


@pytest.fixture
def quantised(quantised_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(quantised_once, tmp_path / "quantised")


LAYER = "model.layers.2.mlp.up_proj"
QUANTISED_BROKEN = {
    "no scales": (edit_weights(drop=f"{LAYER}.scales"), f"biases, got no {LAYER}.scales"),
    "no biases": (edit_weights(drop=f"{LAYER}.biases"), f"biases, got no {LAYER}.biases"),
    "no weight": (edit_weights(drop=f"{LAYER}.weight"), f"biases, got no {LAYER}.weight"),
    "other bits": (edit(quantization={"group_size": 32, "bits": 8}), "lm_head: expected 8 bits in groups of 32"),
    "other groups": (edit(quantization={"group_size": 64, "bits": 4}), "lm_head: expected 4 bits in groups of 64"),
    "both other": (
        edit(quantization={"group_size": 16, "bits": 8}),
        "of the wrong shape: lm_head.weight (expected (259, 64), got",
    ),
    "one layer's own": (
        edit(quantization={"group_size": 32, "bits": 4, LAYER: {"group_size": 32, "bits": 3}}),
        f"{LAYER}: expected 3 bits in groups of 32",
    ),
    "no settings": (edit(quantization={"mode": "affine"}), "lm_head: expected 4 bits in groups of 64"),
    "not said": (edit(drop=("quantization", "quantization_config")), "unexpected: lm_head.biases, lm_head.scales"),
}


@pytest.mark.parametrize(("breaks", "message"), QUANTISED_BROKEN.values(), ids=QUANTISED_BROKEN)
def test_broken_quantised_checkpoint(quantised: Path, breaks: Change, message: str):
    breaks(quantised)
    check_error(quantised, message)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_all_bits_of_mlx_lm_sharded(tmp_path: Path, bits: int, tied: bool):
    """In float32, as mlx-lm computes. mlx-lm adds in another order."""
    config = untrained_config(hidden_size=64, head_dim=32, num_attention_heads=2, tie_word_embeddings=tied)
    dense = Case(config | {"intermediate_size": 128}, seed=0).write(tmp_path / "dense")
    mlx_lm.convert(str(dense), tmp_path / "mlx", quantize=True, q_bits=bits, q_group_size=32)
    delete(INDEX)(tmp_path / "mlx")
    shard(tmp_path / "mlx")
    theirs, _ = mlx_lm.utils.load_model(tmp_path / "mlx")
    with mx.stream(mx.cpu):
        expected = theirs(mx.array(random_tokens(2, 9)))
    assert mx.abs(scores(load_model(tmp_path / "mlx")) - expected).max().item() < 3 * TOLERANCE


@pytest.mark.parametrize("drop", ["group_size", "bits"])
def test_quantisation_without_its_defaults(tmp_path: Path, drop: str):
    """If the checkpoint does not say, MLX uses groups of 64 weights and 4 bits per weight."""
    dense = Case(untrained_config(hidden_size=64, intermediate_size=128, head_dim=32, num_attention_heads=2), seed=0)
    mlx_lm.convert(str(dense.write(tmp_path / "dense")), tmp_path / "mlx", quantize=True)
    expected = scores(load_model(tmp_path / "mlx"))
    mx.eval(expected)
    settings = {"group_size": 64, "bits": 4}
    settings.pop(drop)
    edit(quantization=settings)(tmp_path / "mlx")
    assert mx.array_equal(scores(load_model(tmp_path / "mlx")), expected)


# Checkpoints that stay packed.

SIZES = {"hidden_size": 128, "intermediate_size": 384, "num_attention_heads": 4}
CONFIGS = {
    "qwen2": untrained_config("qwen2", **SIZES, head_dim=32),
    "qwen3": untrained_config("qwen3", **SIZES, head_dim=64),
    "tied": untrained_config("qwen3", **SIZES | {"hidden_size": 64}, head_dim=64, tie_word_embeddings=True),
}
PACKED = {
    f"{model_type}, {bits} bits, groups of {size}": (model_type, {"q_bits": bits, "q_group_size": size})
    for model_type, bits, size in [
        ("qwen2", 4, 64),
        ("qwen2", 8, 32),
        ("qwen3", 2, 32),
        ("qwen3", 4, 128),
        ("tied", 4, 32),
        ("tied", 8, 64),
    ]
}
PACKED["layers of their own"] = (
    "tied",
    {"q_bits": 4, "quant_predicate": lambda path, _: "mlp" in path or {"bits": 8, "group_size": 32}},
)
PACKED["only mlp"] = ("qwen2", {"q_bits": 4, "quant_predicate": lambda path, _: "mlp" in path})
PACKED["all but the embedding"] = ("tied", {"q_bits": 4, "quant_predicate": lambda path, _: "embed" not in path})


def converted(folder: Path, model_type: str, **how: Any) -> Path:
    """Return a checkpoint in float32 that `mlx_lm.convert` quantised."""
    dense = Case(CONFIGS[model_type], seed=5).write(folder / "dense")
    mlx_lm.convert(str(dense), folder / "mlx", quantize=True, **how)
    return folder / "mlx"


@pytest.mark.parametrize(("model_type", "how"), PACKED.values(), ids=PACKED)
def test_packed_scores_are_those_of_mlx_lm(tmp_path: Path, model_type: str, how: dict[str, Any]):
    """In float32: mlx-lm adds in another order. No weight is dense if it is packed in the file."""
    path = converted(tmp_path, model_type, **{"q_group_size": 32} | how)
    theirs, _ = mlx_lm.utils.load_model(path)
    model, _ = load_quantized(path)
    with mx.stream(mx.cpu):
        expected = theirs(mx.array(random_tokens(2, 9)))
    assert mx.abs(scores(model) - expected).max().item() < 3 * TOLERANCE
    stored = mx.load(str(path / WEIGHTS))
    for name, layer in layers_of(model):
        if f"{name}.scales" in stored:
            assert isinstance(layer, QuantizedLinear | QuantizedEmbedding)
            assert mx.array_equal(layer.packed, stored[f"{name}.weight"])
        else:
            assert mx.array_equal(layer.weight, stored[f"{name}.weight"])


def layers_of(model: CausalLM) -> list[tuple[str, Any]]:
    """Return each layer that has a matrix, with its name in a file."""
    linears = [(name, getattr(owner, attribute)) for name, owner, attribute in named_linears(model)]
    return [("model.embed_tokens", model.embed_tokens), *linears]


def test_packed_weights_are_those_of_the_file(quantised: Path):
    edit_weights(model__layers__0__self_attn__rotary_emb__inv_freq=[1.0])(quantised)
    stored = mx.load(str(quantised / WEIGHTS))
    weights = load_quantized_weights(quantised, ModelConfig.from_pretrained(quantised))
    assert weights.keys() == {name for name in stored if "inv_freq" not in name}
    assert all(mx.array_equal(weights[name], stored[name]) for name in weights)
    assert scores(load_quantized_model(quantised)).dtype == mx.bfloat16


def test_tied_packed_checkpoint_may_hold_an_output_layer(tmp_path: Path):
    tied = converted(tmp_path, "tied", q_group_size=32)
    expected = scores(load_quantized_model(tied))
    mx.eval(expected)
    packed, scales, biases = mx.quantize(mx.ones((259, 64)), 32, 4)
    edit_weights(lm_head__weight=packed, lm_head__scales=scales, lm_head__biases=biases)(tied)
    assert mx.array_equal(scores(load_quantized_model(tied)), expected)


SETTINGS = "expected 2, 4 or 8 bits in groups of 32, 64 or 128"
PACKED_BROKEN = QUANTISED_BROKEN | {
    "both other": (edit(quantization={"group_size": 16, "bits": 8}), f"lm_head: {SETTINGS}, got 8 in groups of 16"),
    "one layer's own": (
        edit(quantization={"group_size": 32, "bits": 4, LAYER: {"group_size": 32, "bits": 3}}),
        f"{LAYER}: {SETTINGS}, got 3 in groups of 32",
    ),
    "not said": (edit(drop=("quantization", "quantization_config")), "expected a quantised checkpoint"),
    "one missing": (edit_weights(drop="layers.1.self_attn.k_norm"), "1 missing: model.layers.1.self_attn.k_norm"),
    "a layer missing": (edit_weights(drop=LAYER), f"1 missing: {LAYER}.weight"),
    "one extra": (edit_weights(model__extra=[1.0]), "1 unexpected: model.extra"),
    "another size": (edit(vocab_size=260), "of the wrong shape: lm_head.weight (expected (260, 64), got (259, 64))"),
}


@pytest.mark.parametrize(("breaks", "message"), PACKED_BROKEN.values(), ids=PACKED_BROKEN)
def test_broken_packed_checkpoint(quantised: Path, breaks: Change, message: str):
    breaks(quantised)
    check_error(quantised, message, load_quantized)


def test_packed_checkpoint_of_other_bits(tmp_path: Path):
    check_error(converted(tmp_path, "qwen3", q_group_size=32, quant_predicate="mixed_3_6"), SETTINGS, load_quantized)


def test_dense_checkpoint_is_not_loaded_packed(folder: Path):
    check_error(
        folder, "expected a quantised checkpoint, got one whose config.json has no quantization", load_quantized
    )


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32, None], ids=str)
@pytest.mark.parametrize("name", ["folder", "quantised"])
def test_dtype(request: pytest.FixtureRequest, name: str, dtype: mx.Dtype | None):
    model = load_model(request.getfixturevalue(name), dtype)
    expected = dtype or {"folder": mx.float32, "quantised": mx.bfloat16}[name]
    assert scores(model).dtype == expected
    layer = model.layers[0]
    parts = [model.embed_tokens, model.norm, layer.self_attn.q_norm, layer.self_attn.q_proj, layer.mlp.down_proj]
    assert {part.weight.dtype for part in parts} == {expected}
