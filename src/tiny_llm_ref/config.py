"""What a checkpoint's configuration says of its model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .formats import check_quantization

__all__ = ["ModelConfig", "read_json"]

_MODEL_TYPES = ("qwen2", "qwen3")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and constants of a model, under the names that Hugging Face's config.json uses."""

    model_type: str  # "qwen2" or "qwen3"
    vocab_size: int  # V
    hidden_size: int  # E
    intermediate_size: int  # I
    num_hidden_layers: int
    num_attention_heads: int  # H_q
    num_key_value_heads: int  # H_kv
    head_dim: int  # D
    max_position_embeddings: int  # the context, in tokens
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]  # any of them ends a text
    quantization: Mapping[str, Any] | None  # mlx-lm's {"group_size": ..., "bits": ...}, or None

    @classmethod
    def from_pretrained(cls, path: Path) -> "ModelConfig":
        """Read config.json and, where there is one, generation_config.json of a checkpoint directory.

        Raises:
            FileNotFoundError: there is no config.json.
            ValueError: see `from_hf`.
        """
        config, generation = path / "config.json", path / "generation_config.json"
        contents = read_json(config), read_json(generation) if generation.exists() else {}
        try:
            return cls.from_hf(*contents)
        except ValueError as error:
            raise ValueError(f"{config}: {error}") from error

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None) -> "ModelConfig":
        """Take over the contents of config.json and generation_config.json.

        Raises:
            ValueError: unknown model_type, missing keys (all are named), a feature that is not supported.
        """
        _check_supported(config)
        eos = (generation_config or {}).get("eos_token_id")
        eos = config.get("eos_token_id") if eos is None else eos
        return cls(
            model_type=config["model_type"],
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_hidden_layers=config["num_hidden_layers"],
            num_attention_heads=config["num_attention_heads"],
            num_key_value_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
            head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
            max_position_embeddings=config["max_position_embeddings"],
            rope_theta=_rope(config).get("rope_theta", 10000.0),
            rms_norm_eps=config["rms_norm_eps"],
            tie_word_embeddings=config.get("tie_word_embeddings", False),
            eos_token_ids=tuple([eos] if isinstance(eos, int) else eos or ()),
            quantization=config.get("quantization"),
        )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file does not hold a JSON object.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no {path.name}")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # both bad JSON and bad UTF-8
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """RoPE's settings, which newer files keep under rope_parameters and older ones at the top and in rope_scaling."""
    return {**config, **(config.get("rope_parameters") or {}), **(config.get("rope_scaling") or {})}


def _check_supported(config: Mapping[str, Any]) -> None:
    if config.get("model_type") not in _MODEL_TYPES:
        raise ValueError(
            f"model_type: expected qwen2 (Qwen2, Qwen2.5, QwQ, DeepSeek-R1-Distill-Qwen) or qwen3 (Qwen3 without "
            f"experts), got {config.get('model_type')!r}; other architectures are not supported"
        )
    required = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]
    required += ["max_position_embeddings", "rms_norm_eps"]
    if missing := [key for key in required if not isinstance(config.get(key), int | float)]:
        raise ValueError(f"expected numbers under {', '.join(missing)}, got none")
    check_quantization(config)
    rope = _rope(config)
    found = {
        "rope_type": (rope.get("type") or rope.get("rope_type") or "default", "default"),
        "hidden_act": (config.get("hidden_act", "silu"), "silu"),
        "attention_bias": (config.get("attention_bias", False) if config["model_type"] == "qwen3" else False, False),
        "use_sliding_window": (config.get("use_sliding_window", False), False),
    }
    for name, (got, supported) in found.items():
        if got != supported:
            raise ValueError(f"{name}: expected {supported!r}, got {got!r}, which is not supported")
