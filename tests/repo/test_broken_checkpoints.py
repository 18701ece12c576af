"""Checkpoints that cannot be loaded: each error says in one line what is wrong, and in which file."""

from pathlib import Path

import numpy as np
import pytest
from checkpoint_edits import (
    INDEX,
    WEIGHTS,
    Change,
    both,
    check_error,
    cut,
    delete,
    edit,
    edit_weights,
    empty,
    folder,
    shard,
    write,
)

from tiny_llm_ref.models import load

__all__ = ["folder"]


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


@pytest.mark.parametrize(("breaks", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_checkpoint(folder: Path, breaks: Change, message: str):
    breaks(folder)
    check_error(folder, message)


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
