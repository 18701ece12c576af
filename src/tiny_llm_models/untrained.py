"""Makes small checkpoints with random weights, in Hugging Face format. Every machine makes the same checkpoints."""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from .hf_format import ARCHITECTURES, CHAT_TEMPLATE, SPECIAL_TOKENS, TURN_END, write_json

__all__ = ["QWEN3_0_6B", "byte_tokenizer", "random_weights", "untrained_config", "write_untrained"]


def untrained_config(model_type: str = "qwen3", **changes: Any) -> dict[str, Any]:
    """Return the configuration (config.json) of a tiny model whose sizes all differ from each other.

    A forward pass takes about a millisecond. changes: entries that replace the defaults.
    """
    config = {
        "architectures": [ARCHITECTURES[model_type]],
        "model_type": model_type,
        "vocab_size": 259,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": {"qwen2": 8, "qwen3": 12}[model_type],  # qwen2: hidden_size / num_attention_heads, by definition
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": 258,
    }
    return config | changes


QWEN3_0_6B = untrained_config(
    vocab_size=151936,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=40960,
    tie_word_embeddings=True,
    eos_token_id=151645,
)  # the sizes of Qwen/Qwen3-0.6B


def byte_tokenizer() -> Tokenizer:
    """Return a tokenizer with one token for each byte (ids 0 to 255, not in the order of the bytes), and special
    tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return tokenizer


def random_weights(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Draw float32 weights that keep the size of activations near 1.

    Matrices are normal with standard deviation 1.5 / sqrt(fan-in), and the weights of norms are around 1.
    """
    random = np.random.RandomState(seed)  # gives the same numbers in every version of NumPy

    def weight(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        values = random.standard_normal(shape)
        if "norm" in name:
            values = 1 + 0.2 * values
        elif len(shape) == 2 and "embed" not in name:
            values = 1.5 * values / shape[-1] ** 0.5
        return values.astype(np.float32)

    return {name: weight(name, shape) for name, shape in sorted(shapes.items())}


def write_untrained(
    path: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...]], seed: int = 0
) -> dict[str, np.ndarray[Any, Any]]:
    """Write a checkpoint directory (configuration, tokenizer with chat template, weights), and return the weights.

    shapes: name and shape of every weight, as `weights.expected_shapes` returns them.
    """
    path.mkdir(parents=True, exist_ok=True)
    weights = random_weights(shapes, seed)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    byte_tokenizer().save(str(path / "tokenizer.json"))
    files = {
        "config.json": config,
        "generation_config.json": {} if config["eos_token_id"] is None else {"eos_token_id": [256, 258]},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": TURN_END,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, content in files.items():
        write_json(path / name, content)
    return weights
