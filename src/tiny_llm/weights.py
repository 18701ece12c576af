"""From safetensors files to named arrays, checked against the configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from .config import ModelConfig, read_json

__all__ = ["Weights", "dequantize_weights", "expected_shapes", "load_weights", "read_safetensors"]

Weights = dict[str, mx.array]


def load_weights(path: Path, config: ModelConfig, dtype: mx.Dtype | None = None) -> Weights:
    """All weights of a checkpoint directory, dense, under Hugging Face's names: read, rename, check.

    dtype: of the result; None keeps what the file has (for quantised weights, that of their scales).

    Raises:
        FileNotFoundError: no safetensors file, or one that the index names is missing.
        ValueError: a file is damaged; names that are missing or unexpected, shapes that are not the configuration's.
    """
    stored = read_safetensors(path)
    try:
        weights = _rename(dequantize_weights(stored, config.quantization), config)
        _check_weights(weights, expected_shapes(config))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return weights if dtype is None else {name: array.astype(dtype) for name, array in weights.items()}


def read_safetensors(path: Path) -> Weights:
    """The arrays of model.safetensors, or of the files that model.safetensors.index.json names."""
    index = path / "model.safetensors.index.json"
    files = _shards(index) if index.exists() else sorted(path.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{path} has no .safetensors file, the only format of weights that is supported")
    weights: Weights = {}
    for file in files:
        weights |= _read_file(file)
    return weights


def dequantize_weights(weights: Weights, quantization: Mapping[str, Any] | None) -> Weights:
    """Make dense what mlx-lm quantised: a layer's packed weight, its scales and its biases become one weight.

    quantization: group_size and bits, and under a layer's name its own where they differ.

    Raises:
        ValueError: one of a layer's three arrays is missing, or their shapes are not those of group_size and bits.
    """
    if quantization is None:
        return weights
    dense = dict(weights)
    for layer in sorted({name.rpartition(".")[0] for name in weights if name.endswith((".scales", ".biases"))}):
        own = quantization.get(layer)
        dense[f"{layer}.weight"] = _dequantize(dense, layer, own if isinstance(own, Mapping) else quantization)
    return dense


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight of a model."""
    E, V = config.hidden_size, config.vocab_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (V, E), "model.norm.weight": (E,)}
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (V, E)
    for i in range(config.num_hidden_layers):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in _block_shapes(config).items()}
    return shapes


def _block_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    E, I, D = config.hidden_size, config.intermediate_size, config.head_dim
    Q, KV = config.num_attention_heads * D, config.num_key_value_heads * D
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (E,),
        "self_attn.q_proj.weight": (Q, E),
        "self_attn.k_proj.weight": (KV, E),
        "self_attn.v_proj.weight": (KV, E),
        "self_attn.o_proj.weight": (E, Q),
        "post_attention_layernorm.weight": (E,),
        "mlp.gate_proj.weight": (I, E),
        "mlp.up_proj.weight": (I, E),
        "mlp.down_proj.weight": (E, I),
    }
    if config.model_type == "qwen2":
        return shapes | {
            "self_attn.q_proj.bias": (Q,),
            "self_attn.k_proj.bias": (KV,),
            "self_attn.v_proj.bias": (KV,),
        }
    return shapes | {"self_attn.q_norm.weight": (D,), "self_attn.k_norm.weight": (D,)}


def _shards(index: Path) -> list[Path]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ValueError(f"{index}: expected an object under weight_map, got {type(weight_map).__name__}")
    return [index.parent / name for name in sorted({str(name) for name in weight_map.values()})]


def _read_file(file: Path) -> Weights:
    if not file.is_file():
        raise FileNotFoundError(f"{file.parent} lacks {file.name}, which its index names")
    try:
        weights = mx.load(str(file))
    except RuntimeError as error:
        raise ValueError(f"{file} is damaged or not complete; fetch it again ({error})") from error
    assert isinstance(weights, dict)
    return weights


def _dequantize(weights: Weights, layer: str, quantization: Mapping[str, Any]) -> mx.array:
    """Take a layer's three arrays out of the weights and make one of them."""
    names = [f"{layer}.{part}" for part in ("weight", "scales", "biases")]
    if missing := [name for name in names if name not in weights]:
        raise ValueError(f"quantised layer: expected {', '.join(names)}, got no {', no '.join(missing)}")
    packed, scales, biases = (weights.pop(name) for name in names)
    group_size, bits = quantization.get("group_size"), quantization.get("bits")
    try:
        return mx.dequantize(packed, scales, biases, group_size, bits)
    except ValueError as error:
        raise ValueError(f"{layer}: expected {bits} bits in groups of {group_size}: {error}") from error


def _rename(weights: Weights, config: ModelConfig) -> Weights:
    """Leave out what other programs store and a model does not need."""
    unused = {"lm_head.weight"} if config.tie_word_embeddings else set()
    return {
        name: array
        for name, array in weights.items()
        if name not in unused and not name.endswith("rotary_emb.inv_freq")
    }


def _check_weights(weights: Weights, expected: Mapping[str, tuple[int, ...]]) -> None:
    wrong = {name for name in expected.keys() & weights.keys() if weights[name].shape != expected[name]}
    problems = {
        "missing": sorted(expected.keys() - weights.keys()),
        "unexpected": sorted(weights.keys() - expected.keys()),
        "of the wrong shape": [
            f"{name} (expected {expected[name]}, got {weights[name].shape})" for name in sorted(wrong)
        ],
        "not of a float type": [
            name for name in sorted(weights) if not mx.issubdtype(weights[name].dtype, mx.floating)
        ],
    }
    found = [f"{len(names)} {problem}: {_some(names)}" for problem, names in problems.items() if names]
    if found:
        raise ValueError(f"the weights are not those that the configuration asks for; {'; '.join(found)}")


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
