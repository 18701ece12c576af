"""Checks that the course can build the model that a config.json describes. Given."""

from collections.abc import Mapping
from reprlib import repr as short
from typing import Any

from .formats import check_quantization

__all__ = ["check_config", "check_eos", "rope_settings"]

_MODEL_TYPES = ("qwen2", "qwen3")
_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_OPTIONAL_SIZES = ("num_key_value_heads", "head_dim")
_LONGEST_CONTEXT = 1 << 22  # positions; RoPE keeps two rows of numbers per position


def rope_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return RoPE's settings, which newer files keep under rope_parameters, and older files at the top level and under
    rope_scaling."""
    return {**config, **(config.get("rope_parameters") or {}), **(config.get("rope_scaling") or {})}


def check_config(config: Mapping[str, Any]) -> None:
    """Raise ValueError if the course cannot build a model from the contents of this config.json."""
    if config.get("model_type") not in _MODEL_TYPES:
        raise ValueError(
            f"model_type: expected qwen2 (Qwen2, Qwen2.5, QwQ, DeepSeek-R1-Distill-Qwen) or qwen3 (Qwen3 without "
            f"experts), got {short(config.get('model_type'))}; other architectures are not supported"
        )
    required = [*_SIZES, "max_position_embeddings", "rms_norm_eps"]
    if missing := [key for key in required if not isinstance(config.get(key), int | float)]:
        raise ValueError(f"expected numbers under {', '.join(missing)}, got none")
    for name in ("rope_parameters", "rope_scaling", "quantization", "quantization_config"):
        if not isinstance(config.get(name), Mapping | None):
            raise ValueError(f"{name}: expected an object or null, got {short(config[name])}")
    check_quantization(config)
    _check_sizes(config)
    _check_numbers(config)
    _check_features(config)


def check_eos(eos: Any) -> None:
    """Raise ValueError if an eos_token_id is neither a token id, nor a list of token ids, nor None."""
    tokens = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if not all(_is_whole(token) and token >= 0 for token in tokens):
        raise ValueError(f"eos_token_id: expected a token id or a list of them, got {short(eos)}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_sizes(config: Mapping[str, Any]) -> None:
    for name in (*_SIZES, *(name for name in _OPTIONAL_SIZES if config.get(name) is not None)):
        if not (_is_whole(config[name]) and config[name] >= 1):
            raise ValueError(f"{name}: expected a whole number, 1 or more, got {short(config[name])}")
    length = config["max_position_embeddings"]
    if not (_is_whole(length) and 2 <= length <= _LONGEST_CONTEXT):
        raise ValueError(
            f"max_position_embeddings: expected a whole number from 2 to {_LONGEST_CONTEXT}, got {short(length)}"
        )
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads")
    if kv_heads is not None and heads % kv_heads:
        raise ValueError(f"num_key_value_heads: expected a divisor of num_attention_heads, {heads}, got {kv_heads}")
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    if head_dim % 2 or not head_dim:
        raise ValueError(f"head_dim: expected an even number, 2 or more, got {head_dim}")


def _check_numbers(config: Mapping[str, Any]) -> None:
    eps, theta = config["rms_norm_eps"], rope_settings(config).get("rope_theta", 1.0)
    if not 0 <= eps <= 1:
        raise ValueError(f"rms_norm_eps: expected a number from 0 to 1, got {short(eps)}")
    if not (isinstance(theta, int | float) and 1 <= theta <= 1e30):
        raise ValueError(f"rope_theta: expected a number from 1 to 1e30, got {short(theta)}")
    if not isinstance(tied := config.get("tie_word_embeddings", False), bool):
        raise ValueError(f"tie_word_embeddings: expected true or false, got {short(tied)}")


def _check_features(config: Mapping[str, Any]) -> None:
    rope = rope_settings(config)
    found = {
        "rope_type": (rope.get("type") or rope.get("rope_type") or "default", "default"),
        "hidden_act": (config.get("hidden_act", "silu"), "silu"),
        "attention_bias": (config.get("attention_bias", False) if config["model_type"] == "qwen3" else False, False),
        "use_sliding_window": (config.get("use_sliding_window", False), False),
    }
    for name, (got, supported) in found.items():
        if got != supported:
            raise ValueError(f"{name}: expected {supported!r}, got {short(got)}, which is not supported")
