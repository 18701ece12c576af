"""What the reference makes of a checkpoint directory or a name: which forms load, and the errors of all others."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import mlx_lm.utils
import numpy as np
import pytest
from oracle_cases import TOLERANCE, Case, random_tokens
from safetensors.numpy import load_file, save_file

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.generation_config import sampling_defaults
from tiny_llm_given.linears import named_linears
from tiny_llm_given.weights import load_quantized_weights
from tiny_llm_models.untrained import untrained_config
from tiny_llm_ref.models import load, load_model, load_quantized, load_quantized_model, resolve
from tiny_llm_ref.quantize import QuantizedEmbedding, QuantizedLinear
from tiny_llm_ref.qwen2 import CausalLM

CASE = Case(untrained_config(), seed=0)
INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
Change = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return CASE.write(tmp_path / "checkpoint")


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


def edit(file: str = "config.json", drop: tuple[str, ...] = (), **changes: Any) -> Change:
    """Drop and set keys of a JSON file."""

    def change(folder: Path) -> None:
        contents = json.loads((folder / file).read_text(encoding="utf-8")) | changes
        kept = {key: value for key, value in contents.items() if key not in drop}
        (folder / file).write_text(json.dumps(kept), encoding="utf-8")

    return change


def edit_weights(drop: str = "", **changes: Any) -> Change:
    """Leave out weights whose name contains `drop`, set those given, with __ for a dot."""

    def change(folder: Path) -> None:
        weights = mx.load(str(folder / WEIGHTS))
        kept = {name: array for name, array in weights.items() if not drop or drop not in name}
        new = {name.replace("__", "."): mx.array(value) for name, value in changes.items()}
        mx.eval(kept)  # before the file that they lie in is written anew
        mx.save_safetensors(str(folder / WEIGHTS), kept | new)

    return change


def write(file: str, contents: bytes) -> Change:
    return lambda folder: (folder / file).write_bytes(contents)


def cut(length: int) -> Change:
    """Cut the weights' file after so many bytes, or before so many of its last."""
    return lambda folder: write(WEIGHTS, (folder / WEIGHTS).read_bytes()[:length])(folder)


def delete(file: str) -> Change:
    return lambda folder: (folder / file).unlink()


def shard(folder: Path) -> None:
    """Spread the weights over two files, with an index."""
    weights = load_file(folder / WEIGHTS)
    halves = {f"model-0000{i + 1}-of-00002.safetensors": sorted(weights)[i::2] for i in range(2)}
    for file, names in halves.items():
        save_file({name: weights[name] for name in names}, folder / file, metadata={"format": "pt"})
    where = {name: file for file, names in halves.items() for name in names}
    write(INDEX, json.dumps({"metadata": {}, "weight_map": where}).encode())(folder)
    delete(WEIGHTS)(folder)


def empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def both(first: Change, second: Change) -> Change:
    return lambda folder: (first(folder), second(folder))


YARN = {"factor": 4.0, "original_max_position_embeddings": 128}
UNQUANTISED = "expected weights that are not quantised, or that mlx-lm quantised (2, 3, 4, 5, 6 or 8 bits, mode affine)"
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
BROKEN = {
    # config.json
    "no config.json": (delete("config.json"), "has no config.json"),
    "not JSON": (write("config.json", b"{"), "config.json is not JSON"),
    "not UTF-8": (write("config.json", b'{"\xff": 1}'), "config.json is not JSON"),
    "not an object": (write("config.json", b"[1]"), "config.json: expected a JSON object, got list"),
    "bad generation_config": (write("generation_config.json", b"1"), "generation_config.json: expected a JSON object"),
    "another model_type": (
        edit(model_type="llama"),
        "or qwen3 (Qwen3 without experts), got 'llama'; other architectures are not supported",
    ),
    "no model_type": (edit(drop=("model_type",)), "got None; other architectures are not supported"),
    "missing keys": (edit(drop=("vocab_size", "rms_norm_eps")), "expected numbers under vocab_size, rms_norm_eps"),
    "null and text": (edit(hidden_size=None, vocab_size="259"), "expected numbers under vocab_size, hidden_size"),
    "yarn, old": (edit(rope_scaling={"type": "yarn", **YARN}), "rope_type: expected 'default', got 'yarn'"),
    "yarn, newer": (edit(rope_scaling={"rope_type": "yarn", **YARN}), "rope_type: expected 'default', got 'yarn'"),
    "yarn, newest": (edit(rope_parameters={"rope_type": "yarn", **YARN}), "rope_type: expected 'default', got 'yarn'"),
    "yarn, both": (
        edit(rope_scaling={"type": "yarn", **YARN}, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
        "rope_type: expected 'default', got 'yarn'",
    ),
    "linear": (edit(rope_scaling={"type": "linear", "factor": 2.0}), "rope_type: expected 'default', got 'linear'"),
    "sliding window": (
        edit(use_sliding_window=True, sliding_window=64),
        "use_sliding_window: expected False, got True",
    ),
    "another activation": (edit(hidden_act="gelu"), "hidden_act: expected 'silu', got 'gelu'"),
    "biases in qwen3": (edit(attention_bias=True), "attention_bias: expected False, got True"),
    "gptq": (edit(quantization_config=GPTQ), f"quantised by GPTQ; {UNQUANTISED}"),
    "gptq, with a null": (edit(quantization=None, quantization_config=GPTQ), f"quantised by GPTQ; {UNQUANTISED}"),
    "awq": (edit(quantization_config=GPTQ | {"quant_method": "awq"}), f"quantised by AWQ; {UNQUANTISED}"),
    "fp8": (edit(quantization_config=FP8), f"quantised by FP8; {UNQUANTISED}"),
    "bitsandbytes": (
        edit(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
        f"quantised by bitsandbytes; {UNQUANTISED}",
    ),
    "another quantisation": (edit(quantization_config={"quant_method": "new"}), f"quantised by 'new'; {UNQUANTISED}"),
    "mxfp4": (
        edit(quantization={"group_size": 32, "bits": 4, "mode": "mxfp4"}),
        f"in mlx-lm's mode 'mxfp4'; {UNQUANTISED}",
    ),
    # the tokenizer
    "no tokenizer.json": (delete("tokenizer.json"), "has no tokenizer.json"),
    "tokenizer.json not JSON": (write("tokenizer.json", b"{"), "tokenizer.json is not JSON"),
    "tokenizer.json of another kind": (write("tokenizer.json", b'{"a": 1}'), "its tokenizer cannot be loaded: "),
    # files of weights
    "no weights": (delete(WEIGHTS), "has no .safetensors file, the only format of weights that is supported"),
    "pytorch_model.bin": (
        both(delete(WEIGHTS), write("pytorch_model.bin", b"PK")),
        "holds weights in PyTorch's format; expected .safetensors. Convert them: ",
    ),
    "gguf beside a configuration": (both(delete(WEIGHTS), write("model.gguf", b"GGUF")), "holds GGUF, "),
    "gguf alone": (both(empty, write("model.gguf", b"GGUF")), "holds GGUF, "),
    "adapters of mlx-lm": (
        both(empty, both(write("adapters.safetensors", b""), write("adapter_config.json", b'{"model": "some/base"}'))),
        "Merge them: `mlx_lm.fuse --model some/base --adapter-path ",
    ),
    "adapters of PEFT": (
        both(empty, write("adapter_config.json", b'{"base_model_name_or_path": "some/base"}')),
        "Merge them: PEFT's `merge_and_unload`, and write the model of some/base with `save_pretrained`",
    ),
    "damaged adapters": (both(empty, write("adapter_config.json", b"{")), "adapter_config.json is not JSON"),
    "empty file": (write(WEIGHTS, b""), f"{WEIGHTS} is damaged or not complete"),
    "length cut": (cut(5), f"{WEIGHTS} is damaged or not complete"),
    "header cut": (cut(500), f"{WEIGHTS} is damaged or not complete"),
    "data cut": (cut(20_000), f"{WEIGHTS} is damaged or not complete"),
    "last byte cut": (cut(-1), f"{WEIGHTS} is damaged or not complete"),
    "not safetensors": (write(WEIGHTS, b"<!doctype html><title>404</title>"), f"{WEIGHTS} is damaged or not complete"),
    "git-lfs pointer": (
        write(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 99\n"),
        f"{WEIGHTS} is damaged or not complete",
    ),
    "shard missing": (
        both(shard, delete("model-00002-of-00002.safetensors")),
        "lacks model-00002-of-00002.safetensors, which its index names",
    ),
    "shard cut": (
        both(shard, write("model-00002-of-00002.safetensors", b"")),
        "model-00002-of-00002.safetensors is damaged or not complete",
    ),
    "index not JSON": (write(INDEX, b"{"), f"{INDEX} is not JSON"),
    "index without map": (write(INDEX, b"{}"), f"{INDEX}: expected an object under weight_map, got NoneType"),
    "index with a list": (
        write(INDEX, b'{"weight_map": [1]}'),
        f"{INDEX}: expected an object under weight_map, got list",
    ),
    "index with numbers": (
        write(INDEX, b'{"weight_map": {"a": 1}}'),
        f"{INDEX}: expected names of .safetensors files in the same folder, got '1'",
    ),
    # weights
    "one missing": (
        edit_weights(drop="layers.1.self_attn.k_norm"),
        "1 missing: model.layers.1.self_attn.k_norm.weight",
    ),
    "one extra": (edit_weights(model__extra=[1.0]), "1 unexpected: model.extra"),
    "another shape": (
        edit_weights(model__norm__weight=np.ones(47, np.float32)),
        "1 of the wrong shape: model.norm.weight (expected (48,), got (47,))",
    ),
    "transposed": (
        edit_weights(lm_head__weight=np.ones((48, 259), np.float32)),
        "1 of the wrong shape: lm_head.weight (expected (259, 48), got (48, 259))",
    ),
    "integers": (edit_weights(model__norm__weight=np.ones(48, np.int32)), "1 not of a float type: model.norm.weight"),
    "many missing": (
        edit_weights(drop="mlp"),
        "9 missing: model.layers.0.mlp.down_proj.weight, model.layers.0.mlp.gate_proj.weight, "
        "model.layers.0.mlp.up_proj.weight, model.layers.1.mlp.down_proj.weight, model.layers.1.mlp.gate_proj.weight, "
        "model.layers.1.mlp.up_proj.weight and 3 more",
    ),
    "missing and extra": (
        both(edit_weights(drop="lm_head"), edit_weights(lm_head__bias=[1.0])),
        "1 missing: lm_head.weight; 1 unexpected: lm_head.bias",
    ),
    "qwen3 as qwen2": (edit(model_type="qwen2"), "9 missing: model.layers.0.self_attn.k_proj.bias"),
    "another size": (
        edit(intermediate_size=81),
        "9 of the wrong shape: model.layers.0.mlp.down_proj.weight (expected (48, 81)",
    ),
    "quantised, no quantization": (edit_weights(lm_head__scales=[1.0]), "1 unexpected: lm_head.scales"),
}
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


def check_error(folder: Path, expected: str, load: Callable[[Path], object] = load) -> None:
    """One line, of a type that a caller expects, which names the file or the directory and what is wrong."""
    with pytest.raises((ValueError, FileNotFoundError)) as raised:
        load(folder)
    message = str(raised.value)
    assert type(raised.value) in (ValueError, FileNotFoundError)
    assert str(folder) in message
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(("breaks", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_checkpoint(folder: Path, breaks: Change, message: str):
    breaks(folder)
    check_error(folder, message)


@pytest.mark.parametrize(("breaks", "message"), QUANTISED_BROKEN.values(), ids=QUANTISED_BROKEN)
def test_broken_quantised_checkpoint(quantised: Path, breaks: Change, message: str):
    breaks(quantised)
    check_error(quantised, message)


NAMES = [
    "",
    ".",
    "nowhere",
    "./nowhere/at-all",
    "/nowhere/at/all",
    "~/nowhere",
    "a/b/c",
    "a b/c",
    "-a/b",
    "a/b..c",
    "a/",
    "/a",
]


@pytest.mark.parametrize("name", NAMES)
def test_neither_directory_nor_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^[^\n]+$"):
        load(name)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("model.gguf", "model.gguf is GGUF, llama.cpp's format; expected a folder in Hugging Face format: "),
        (WEIGHTS, f"{WEIGHTS} is a file; expected a folder in Hugging Face format: "),
    ],
)
def test_a_file_is_no_checkpoint(folder: Path, file: str, message: str):
    write(file, b"GGUF")(folder)
    check_error(folder, message, lambda folder: load(folder / file))


def scores(model: CausalLM) -> mx.array:
    return model(mx.array(random_tokens(2, 9)))


FINE = {
    "sharded": shard,
    "float16 elsewhere": edit(torch_dtype="float16"),
    "inverse frequencies": edit_weights(model__layers__0__self_attn__rotary_emb__inv_freq=[1.0]),
    "rope_scaling of the default type": edit(rope_scaling={"type": "default"}),
    "no rope_scaling": edit(rope_scaling=None, sliding_window=None, use_sliding_window=False),
    "rope_theta, new": edit(drop=("rope_theta",), rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "rope_theta, both": edit(rope_theta=1.0, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
}


@pytest.mark.parametrize("change", FINE.values(), ids=FINE)
def test_another_form_of_the_same_checkpoint(folder: Path, change: Change):
    expected = scores(load_model(folder))
    mx.eval(expected)
    change(folder)
    assert mx.array_equal(scores(load_model(folder)), expected)


@pytest.mark.parametrize(
    ("changes", "rope_theta"),
    [
        (edit(rope_theta=500.0), 500.0),
        (edit(drop=("rope_theta",), rope_parameters={"rope_theta": 600.0}), 600.0),
        (edit(rope_theta=500.0, rope_parameters={"rope_theta": 600.0}), 600.0),
        (edit(drop=("rope_theta",)), 10000.0),
    ],
    ids=["old", "new", "both", "neither"],
)
def test_rope_theta(folder: Path, changes: Change, rope_theta: float):
    before = scores(load_model(folder))
    mx.eval(before)
    changes(folder)
    model = load_model(folder)
    assert model.config.rope_theta == rope_theta
    assert not mx.allclose(scores(model), before)


def test_tied_checkpoint_may_hold_an_output_layer(tmp_path: Path):
    tied = Case(untrained_config(tie_word_embeddings=True), seed=0).write(tmp_path)
    expected = scores(load_model(tied))
    mx.eval(expected)
    edit_weights(lm_head__weight=np.ones((259, 48), np.float32))(tied)
    assert mx.array_equal(scores(load_model(tied)), expected)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_all_bits_of_mlx_lm_sharded(tmp_path: Path, bits: int, tied: bool):
    """In float32, as mlx-lm computes with them, whose sums have another order."""
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
    """MLX's groups are of 64 and its numbers of 4 bits, where nothing is said."""
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
    """A checkpoint that `mlx_lm.convert` quantised, in float32."""
    dense = Case(CONFIGS[model_type], seed=5).write(folder / "dense")
    mlx_lm.convert(str(dense), folder / "mlx", quantize=True, **how)
    return folder / "mlx"


@pytest.mark.parametrize(("model_type", "how"), PACKED.values(), ids=PACKED)
def test_packed_scores_are_those_of_mlx_lm(tmp_path: Path, model_type: str, how: dict[str, Any]):
    """In float32: mlx-lm sums in another order. And without a dense weight where the file has a packed one."""
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
    """Return each layer that holds a matrix, with its name in a file."""
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


@pytest.mark.parametrize(
    ("generation_config", "config", "expected"),
    [
        ({"eos_token_id": 3}, {"eos_token_id": 9}, (3,)),
        ({"eos_token_id": [3, 4]}, {"eos_token_id": 9}, (3, 4)),
        ({"eos_token_id": 0}, {"eos_token_id": 9}, (0,)),
        ({"eos_token_id": None}, {"eos_token_id": 9}, (9,)),
        ({}, {"eos_token_id": 9}, (9,)),
        ({}, {"eos_token_id": [9, 8]}, (9, 8)),
        ({}, {"eos_token_id": None}, ()),
        ({}, {}, ()),
        (None, {"eos_token_id": 9}, (9,)),
        (None, {}, ()),
    ],
)
def test_eos_token_ids(folder: Path, generation_config: dict[str, Any] | None, config: dict[str, Any], expected: tuple):
    edit(drop=("eos_token_id",))(folder)
    edit(**config)(folder)
    delete("generation_config.json")(folder)
    if generation_config is not None:
        write("generation_config.json", json.dumps(generation_config).encode())(folder)
    assert ModelConfig.from_pretrained(folder).eos_token_ids == expected


QWEN3 = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
ADVICE: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "qwen3": (QWEN3 | {"eos_token_id": [3, 4], "transformers_version": "5"}, {k: QWEN3[k] for k in list(QWEN3)[1:]}),
    "all": (
        {"min_p": 0.05, "repetition_penalty": 1.05, "top_k": 0},
        {"min_p": 0.05, "repetition_penalty": 1.05, "top_k": 0},
    ),
    "greedy": (QWEN3 | {"do_sample": False}, {"temperature": 0.0, "top_k": 20, "top_p": 0.95}),
    "nothing said": ({"do_sample": None, "temperature": None, "max_new_tokens": 2048}, {}),
}


@pytest.mark.parametrize(("contents", "expected"), ADVICE.values(), ids=ADVICE)
def test_sampling_that_a_checkpoint_advises(tmp_path: Path, contents: dict[str, Any], expected: dict[str, float]):
    write("generation_config.json", json.dumps(contents).encode())(tmp_path)
    assert sampling_defaults(tmp_path) == expected


def test_sampling_without_a_generation_config(tmp_path: Path):
    assert sampling_defaults(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("temperature", -1, "greater than or equal to 0, got -1"),
        ("temperature", "warm", "a valid number, got 'warm'"),
        ("top_k", 1.5, "a valid integer, got 1.5"),
        ("top_k", True, "a valid integer, got True"),
        ("top_p", 0, "greater than 0, got 0"),
        ("min_p", 2, "less than or equal to 1, got 2"),
        ("repetition_penalty", 0, "greater than or equal to 0.01, got 0"),
    ],
)
def test_sampling_that_cannot_be(tmp_path: Path, name: str, value: object, expected: str):
    write("generation_config.json", json.dumps({name: value}).encode())(tmp_path)
    check_error(
        tmp_path,
        f"generation_config.json: {name}: Input should be {expected}; correct it, or delete it",
        sampling_defaults,
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


def test_path_may_be_given_in_any_form(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.chdir(folder.parent)
    for form in (folder, str(folder), f"{folder}/", "~/checkpoint", Path("~/checkpoint"), "checkpoint", "./checkpoint"):
        assert resolve(form).samefile(folder)
    monkeypatch.chdir(folder.parent.parent)
    assert resolve(f"{folder.parent.name}/checkpoint").samefile(folder)  # a directory comes before a name on the Hub


HUB = """
import sys, time
from tiny_llm_given.generation_config import sampling_defaults
from tiny_llm_ref.models import load, resolve
start = time.monotonic()
try:
    print(resolve(sys.argv[1]))
    model, tokenizer = load(sys.argv[1])
    print(model.config.vocab_size, tokenizer.encode("a"))
except FileNotFoundError as error:
    print(error)
    assert time.monotonic() - start < 10
"""
REVISION = "0123456789abcdef0123456789abcdef01234567"
NO_NETWORK = {"offline": {"HF_HUB_OFFLINE": "1"}, "unreachable": {"HF_ENDPOINT": "http://127.0.0.1:9"}}


def ask_hub(home: Path, settings: dict[str, str], name: str) -> list[str]:
    """The lines that HUB prints. In a process of its own: huggingface_hub reads its settings when it is imported."""
    unset = ("HF_", "HUGGINGFACE_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(unset) and "proxy" not in key.lower()}
    environment = kept | settings | {"HF_HOME": str(home), "NO_PROXY": "*"}
    run = subprocess.run([sys.executable, "-c", HUB, name], env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@pytest.mark.parametrize("settings", NO_NETWORK.values(), ids=NO_NETWORK)
def test_name_that_is_not_downloaded(tmp_path: Path, settings: dict[str, str]):
    assert ask_hub(tmp_path, settings, "Qwen/Qwen3-0.6B") == [
        "'Qwen/Qwen3-0.6B' is neither a directory nor downloaded yet, and the Hub cannot be reached; "
        "give the path of a checkpoint directory, or try again with a network"
    ]


def test_name_of_another_format(tmp_path: Path):
    """Of a repository with .gguf files, nothing is downloaded but what is beside them."""
    cached = tmp_path / "hub" / "models--some-org--some-model-GGUF"
    (cached / "snapshots" / REVISION).mkdir(parents=True)
    (cached / "snapshots" / REVISION / "params.txt").write_text("")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(REVISION)
    assert ask_hub(tmp_path, NO_NETWORK["offline"], "some-org/some-model-GGUF") == [
        "'some-org/some-model-GGUF' has no config.json on the Hub; expected a checkpoint in Hugging Face format. Names "
        "that end in -GGUF are in llama.cpp's format: take the model that it was made from"
    ]


@pytest.mark.parametrize("settings", NO_NETWORK.values(), ids=NO_NETWORK)
def test_name_that_was_downloaded_loads_without_a_network(tmp_path: Path, settings: dict[str, str]):
    cached = tmp_path / "hub" / "models--some-org--some-model"
    CASE.write(cached / "snapshots" / REVISION)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(REVISION)
    path, sizes = ask_hub(tmp_path, settings, "some-org/some-model")
    assert Path(path).samefile(cached / "snapshots" / REVISION)
    assert sizes.startswith("259 [")
