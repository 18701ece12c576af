"""Reads weights from safetensors files, and checks them against the configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from .checkpoint_files import shards
from .config import ModelConfig

__all__ = [
    "Weights",
    "dequantize_weights",
    "expected_shapes",
    "layer_quantization",
    "load_quantized_weights",
    "load_weights",
    "read_safetensors",
]

Weights = dict[str, mx.array]


def load_weights(path: Path, config: ModelConfig, dtype: mx.Dtype | None = None) -> Weights:
    """Check all weights of a checkpoint directory, and return them dense, keyed by Hugging Face's names.

    dtype: the dtype of the result; None keeps the file's dtype (for quantised weights, the dtype of their scales).

    Raises:
        FileNotFoundError: there is no safetensors file, or a file that the index names is missing.
        ValueError: a file is damaged; names are missing or unexpected; shapes differ from the configuration's.
    """
    stored = read_safetensors(path)
    try:
        _check_layers(stored, config.num_hidden_layers)
        weights = _rename(dequantize_weights(stored, config.quantization), config)
        _check_weights(weights, expected_shapes(config))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return weights if dtype is None else {name: array.astype(dtype) for name, array in weights.items()}


def load_quantized_weights(path: Path, config: ModelConfig) -> Weights:
    """Check all weights of a checkpoint that mlx-lm quantised, as `load_weights` does. Return the stored arrays
    unchanged.

    A quantised layer has weight (packed), scales and biases; `layer_quantization` says how the layer was quantised.

    Raises:
        FileNotFoundError: as in `load_weights`.
        ValueError: as in `load_weights`; or the checkpoint is not quantised, or a layer has other than 2, 4 or 8 bits
            per weight, or groups of other than 32, 64 or 128 weights.
    """
    stored = read_safetensors(path)
    try:
        _check_layers(stored, config.num_hidden_layers)
        _check_quantized(stored, config.quantization)
        dense = _rename(dequantize_weights(stored, config.quantization), config)  # never computed: MLX is lazy
        _check_weights(dense, expected_shapes(config))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return {name: array for name, array in stored.items() if f"{_layer(name)}.weight" in dense}


def layer_quantization(quantization: Mapping[str, Any] | None, layer: str) -> tuple[int, int]:
    """Return a layer's group size and bits per weight: its own, the checkpoint's, or MLX's defaults (64 and 4)."""
    own = (quantization or {}).get(layer)
    settings = own if isinstance(own, Mapping) else quantization or {}
    return settings.get("group_size", 64), settings.get("bits", 4)


def read_safetensors(path: Path) -> Weights:
    """Return the arrays of model.safetensors, or of the files that model.safetensors.index.json names."""
    index = path / "model.safetensors.index.json"
    files = shards(index) if index.exists() else sorted(path.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(
            f"{path} has no .safetensors file, the only format of weights that is supported; if its model has .bin "
            "files, convert them with huggingface.co/spaces/safetensors/convert"
        )
    weights: Weights = {}
    for file in files:
        weights |= _read_file(file)
    return weights


def dequantize_weights(weights: Weights, quantization: Mapping[str, Any] | None) -> Weights:
    """Dequantise the layers that mlx-lm quantised: the packed weight, scales and biases of a layer become one weight.

    quantization: the checkpoint's group_size and bits, and those of each layer that differs, keyed by layer name.

    Raises:
        ValueError: one of a layer's three arrays is missing, or their shapes do not match group_size and bits.
    """
    if quantization is None:
        return weights
    dense = dict(weights)
    for layer in _quantized_layers(weights):
        dense[f"{layer}.weight"] = _dequantize(dense, layer, *layer_quantization(quantization, layer))
    return dense


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of a model, keyed by the name of the weight."""
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


def _read_file(file: Path) -> Weights:
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not a file, or links to a missing one")
    try:
        weights = mx.load(str(file))
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{file} is damaged or not complete; fetch it again ({error})") from error
    assert isinstance(weights, dict)
    return weights


def _layer(name: str) -> str:
    """Return the name of the layer to which a weight belongs."""
    return name.rpartition(".")[0]


def _quantized_layers(weights: Weights) -> list[str]:
    return sorted({_layer(name) for name in weights if name.endswith((".scales", ".biases"))})


def _dequantize(weights: Weights, layer: str, group_size: int, bits: int) -> mx.array:
    """Take a layer's three arrays out of the weights. Return the dense weight that these arrays encode."""
    names = [f"{layer}.{part}" for part in ("weight", "scales", "biases")]
    if missing := [name for name in names if name not in weights]:
        raise ValueError(f"quantised layer: expected {', '.join(names)}, got no {', no '.join(missing)}")
    packed, scales, biases = (weights.pop(name) for name in names)
    try:
        return mx.dequantize(packed, scales, biases, group_size, bits)
    except ValueError as error:
        raise ValueError(f"{layer}: expected {bits} bits in groups of {group_size}: {error}") from error


def _rename(weights: Weights, config: ModelConfig) -> Weights:
    """Return the weights without the arrays that other programs store and the model does not need."""
    unused = {"lm_head.weight"} if config.tie_word_embeddings else set()
    return {
        name: array
        for name, array in weights.items()
        if name not in unused and not name.endswith("rotary_emb.inv_freq")
    }


def _check_quantized(weights: Weights, quantization: Mapping[str, Any] | None) -> None:
    if quantization is None:
        raise ValueError("expected a quantised checkpoint, got one whose config.json has no quantization")
    for layer in _quantized_layers(weights):
        group_size, bits = layer_quantization(quantization, layer)
        if bits not in (2, 4, 8) or group_size not in (32, 64, 128):
            raise ValueError(
                f"{layer}: expected 2, 4 or 8 bits in groups of 32, 64 or 128, got {bits} in groups of {group_size}, "
                "which cannot be left packed: `--layers plain` makes it dense"
            )


def _check_layers(weights: Weights, num_hidden_layers: int) -> None:
    """Raise ValueError if the configuration has more layers than the files: a list of 10^9 would fill the memory."""
    stored = {name.split(".")[2] for name in weights if name.startswith("model.layers.")}
    if num_hidden_layers > len(stored):
        raise ValueError(
            f"num_hidden_layers: expected at most {len(stored)}, as the files have, got {num_hidden_layers}"
        )


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
