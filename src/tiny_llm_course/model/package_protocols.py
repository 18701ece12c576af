"""Protocols for the objects with which commands run a model. The protocols list only the members that commands read or
call.

The objects may come from the reference or from a learner's package, so commands name these protocols instead of
classes. Where the reference is installed, mypy checks that the reference's classes match the protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import mlx.core as mx

__all__ = ["Cache", "LayerCache", "Model", "ModelConfig", "Sampler", "Thinking", "Thoughts", "Tokenizer"]

Sampler: TypeAlias = "Callable[[mx.array, mx.array], mx.array]"  # logits B x V, tokens so far B x L -> next tokens B


class ModelConfig(Protocol):
    """The sizes of a model."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def num_hidden_layers(self) -> int: ...
    @property
    def num_attention_heads(self) -> int: ...
    @property
    def num_key_value_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def max_position_embeddings(self) -> int: ...
    @property
    def eos_token_ids(self) -> Sequence[int]: ...


class LayerCache(Protocol):
    """The part of a cache that one attention layer uses."""

    @property
    def offset(self) -> int | mx.array: ...
    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array: ...


class Cache(Protocol):
    """The part of a cache that a model uses."""

    @property
    def layers(self) -> Sequence[LayerCache]: ...
    def advance(self, length: int) -> None: ...


class Norm(Protocol):
    """The model's last norm layer. The model computes in the dtype of this layer's weight."""

    @property
    def weight(self) -> mx.array: ...


class Model(Protocol):
    """A language model."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def layers(self) -> Sequence[object]: ...
    @property
    def norm(self) -> Norm: ...
    @property
    def embed_tokens(self) -> object: ...
    def __call__(self, tokens: mx.array, cache: Cache | None = None) -> mx.array: ...
    def hidden(self, tokens: mx.array, cache: Cache) -> mx.array: ...
    def logits(self, hidden: mx.array) -> mx.array: ...


class Tokenizer(Protocol):
    """mlx-lm's tokenizer, which every package loads."""

    @property
    def has_chat_template(self) -> bool: ...
    def encode(self, text: str) -> Sequence[int]: ...
    def decode(self, tokens: list[int], /, skip_special_tokens: bool = ...) -> str: ...
    def convert_ids_to_tokens(self, ids: list[int], /) -> list[str]: ...
    def apply_chat_template(self, messages: Sequence[Any], **options: Any) -> Sequence[int]: ...


class Thoughts(Protocol):
    """A reader that separates the thinking from the answer, token by token."""

    @property
    def is_open(self) -> bool: ...
    @property
    def count(self) -> int: ...
    def take(self, token: int) -> str | None: ...


class Thinking(Protocol):
    """The way in which a checkpoint thinks."""

    @property
    def can_choose(self) -> bool: ...
    def choose(self, wanted: bool | None) -> bool: ...
    def thoughts(self, thinks: bool) -> Thoughts: ...


if TYPE_CHECKING:
    from tiny_llm_ref.qwen2 import CausalLM
    from tiny_llm_ref.thinking import Thinking as ReferenceThinking

    def _reference_fits(model: CausalLM, thinking: ReferenceThinking) -> tuple[Model, Thinking]:
        return model, thinking
