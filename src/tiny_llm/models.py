"""Loads a model and its tokenizer, by name or by path."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.formats import check_file, check_folder
from tiny_llm_given.tokenizer import load_tokenizer
from tiny_llm_given.weights import layer_quantization, load_quantized_weights, load_weights
from tiny_llm_models import BUNDLED, bundled

from .basics import Linear
from .embedding import Embedding
from .layer_norm import RMSNorm
from .mlp import SwiGLU
from .positional_encoding import RoPE
from .quantize import QuantizedEmbedding, QuantizedLinear
from .qwen2 import CausalLM, Qwen2Attention, TransformerBlock
from .qwen3 import Qwen3Attention

__all__ = ["build_model", "load", "load_model", "load_quantized", "load_quantized_model", "resolve"]

_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja"]


def load(name_or_path: str | Path, dtype: mx.Dtype | None = None) -> tuple[CausalLM, Any]:
    """Return a model and mlx-lm's tokenizer for it, which has `encode`, `decode` and `apply_chat_template`.

    name_or_path: the name of a bundled model, a checkpoint directory, or a name on the Hub.
    dtype: the dtype of the weights; None keeps the checkpoint's dtype.

    Raises:
        FileNotFoundError: there is no such directory or name, the model is not downloaded yet and there is no
            network, or files are missing.
        ValueError: the checkpoint is damaged, or is of a kind that is not supported.
    """
    path = resolve(name_or_path)
    model = load_model(path, dtype)
    return model, load_tokenizer(path, model.config.vocab_size)


def load_model(path: Path, dtype: mx.Dtype | None = None) -> CausalLM:
    """Return the model from a checkpoint directory. Raises the same errors as `load`."""
    config = ModelConfig.from_pretrained(path)
    return build_model(config, load_weights(path, config, dtype))


def load_quantized(name_or_path: str | Path) -> tuple[CausalLM, Any]:
    """Return a model that mlx-lm quantised, and its tokenizer. The model's weights stay packed, while `load` would make
    them dense.

    Raises:
        FileNotFoundError: as in `load`.
        ValueError: as in `load`; or the checkpoint is not quantised to 2, 4 or 8 bits per weight.
    """
    path = resolve(name_or_path)
    model = load_quantized_model(path)
    return model, load_tokenizer(path, model.config.vocab_size)


def load_quantized_model(path: Path) -> CausalLM:
    """Return the model from the directory of a quantised checkpoint. Raises the same errors as `load_quantized`."""
    config = ModelConfig.from_pretrained(path)
    return build_model(config, load_quantized_weights(path, config))


def build_model(config: ModelConfig, weights: Mapping[str, mx.array]) -> CausalLM:
    """Build a model from its weights.

    weights: the arrays that `expected_shapes(config)` names, dense or as `load_quantized_weights` returns them.
    """
    parts = _Parts(config, weights)
    return CausalLM(
        config,
        parts.embedding("model.embed_tokens"),
        [parts.block(f"model.layers.{i}") for i in range(config.num_hidden_layers)],
        parts.norm("model.norm"),
        None if config.tie_word_embeddings else parts.linear("lm_head"),
    )


class _Parts:
    """A builder of a model's parts, which finds the weights of each part by name."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, mx.array]):
        self.config = config
        self.weights = weights
        self.rope = RoPE(config.head_dim, config.max_position_embeddings, config.rope_theta)

    def embedding(self, name: str) -> Any:
        """Return an `Embedding`, or a `QuantizedEmbedding` if its weights are packed."""
        if packed := self.packed(name):
            return QuantizedEmbedding(*packed)
        return Embedding(self.config.vocab_size, self.config.hidden_size, self.weights[f"{name}.weight"])

    def linear(self, name: str) -> Linear | QuantizedLinear:
        bias = self.weights.get(f"{name}.bias")
        if packed := self.packed(name):
            return QuantizedLinear(*packed, bias)
        return Linear(self.weights[f"{name}.weight"], bias)

    def packed(self, name: str) -> tuple[mx.array, mx.array, mx.array, int, int] | None:
        """Return the arrays and settings of a quantised layer. Return None if the layer is dense."""
        if f"{name}.scales" not in self.weights:
            return None
        packed, scales, biases = (self.weights[f"{name}.{part}"] for part in ("weight", "scales", "biases"))
        return packed, scales, biases, *layer_quantization(self.config.quantization, name)

    def norm(self, name: str) -> RMSNorm:
        weight = self.weights[f"{name}.weight"]
        return RMSNorm(weight.shape[0], weight, self.config.rms_norm_eps)

    def attention(self, name: str) -> Qwen2Attention:
        q, k, v, o = (self.linear(f"{name}.{part}_proj") for part in "qkvo")
        if self.config.model_type == "qwen2":
            return Qwen2Attention(self.config, q, k, v, o, self.rope)
        q_norm, k_norm = (self.norm(f"{name}.{part}_norm") for part in "qk")
        return Qwen3Attention(self.config, q, k, v, o, self.rope, q_norm, k_norm)

    def mlp(self, name: str) -> SwiGLU:
        gate, up, down = (self.linear(f"{name}.{part}_proj") for part in ("gate", "up", "down"))
        return SwiGLU(self.config.hidden_size, self.config.intermediate_size, gate, up, down)

    def block(self, name: str) -> TransformerBlock:
        return TransformerBlock(
            self.attention(f"{name}.self_attn"),
            self.mlp(f"{name}.mlp"),
            self.norm(f"{name}.input_layernorm"),
            self.norm(f"{name}.post_attention_layernorm"),
        )


def resolve(name_or_path: str | Path) -> Path:
    """Return the checkpoint directory of a model; download the model first if necessary. Raises the errors of `load`.

    name_or_path: a bundled model ("story"; for a directory with that name, write "./story"), a directory, or a model
        on the Hugging Face Hub ("Qwen/Qwen3-0.6B").
    """
    if name_or_path in BUNDLED:
        return bundled(str(name_or_path))
    path = Path(name_or_path).expanduser()
    check_file(path)
    if path.is_dir():
        check_folder(path)
        return path
    if str(name_or_path).count("/") != 1 or str(name_or_path).startswith((".", "/", "~")):
        raise FileNotFoundError(
            f"no checkpoint directory {str(name_or_path)!r}; the bundled models are {', '.join(BUNDLED)}, and a name "
            "on the Hub looks like 'Qwen/Qwen3-0.6B'"
        )
    path = _download(str(name_or_path))
    if not path.is_dir() or not list(path.glob("*config.json")):
        raise FileNotFoundError(
            f"{str(name_or_path)!r} has no config.json on the Hub; expected a checkpoint in Hugging Face format. Names "
            "that end in -GGUF are in llama.cpp's format: take the model that it was made from"
        )
    check_folder(path)
    return path


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise FileNotFoundError(f"no directory and no public model on the Hub: {name!r}") from error
    except OSError as error:
        raise FileNotFoundError(
            f"{name!r} is neither a directory nor downloaded yet, and the Hub cannot be reached; "
            "give the path of a checkpoint directory, or try again with a network"
        ) from error
