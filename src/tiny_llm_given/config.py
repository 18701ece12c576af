"""The configuration of a checkpoint's model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .checkpoint_files import read_json
from .config_check import check_config, check_eos, rope_settings

__all__ = ["ModelConfig"]


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
    eos_token_ids: tuple[int, ...]  # each of these tokens ends a text
    quantization: Mapping[str, Any] | None  # mlx-lm's {"group_size": ..., "bits": ...}, or None

    @classmethod
    def from_pretrained(cls, path: Path) -> "ModelConfig":
        """Read the config.json of a checkpoint directory and, if there is one, its generation_config.json.

        Raises:
            FileNotFoundError: there is no config.json.
            ValueError: as in `from_hf`.
        """
        config, generation = path / "config.json", path / "generation_config.json"
        contents = read_json(config), read_json(generation) if generation.exists() else {}
        try:
            return cls.from_hf(*contents)
        except ValueError as error:
            raise ValueError(f"{config}: {error}") from error

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None) -> "ModelConfig":
        """Make a configuration from the contents of config.json and generation_config.json.

        Raises:
            ValueError: the model_type is unknown, keys are missing (the message names all missing keys), a value is one
                that no model can have, or a feature is not supported.
        """
        check_config(config)
        eos = (generation_config or {}).get("eos_token_id")
        eos = config.get("eos_token_id") if eos is None else eos
        check_eos(eos)
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
            rope_theta=rope_settings(config).get("rope_theta", 10000.0),
            rms_norm_eps=config["rms_norm_eps"],
            tie_word_embeddings=config.get("tie_word_embeddings", False),
            eos_token_ids=tuple([eos] if isinstance(eos, int) else eos or ()),
            quantization=config.get("quantization"),
        )
