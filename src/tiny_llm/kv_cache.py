"""The cache seam: where a model's attention finds its keys and values, and its positions."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import mlx.core as mx

from .attention import scaled_dot_product_attention_grouped

__all__ = ["Attention", "Cache", "LayerCache", "NoCache"]

Attention: TypeAlias = Callable[[mx.array, mx.array, mx.array, "float | None", "mx.array | str | None"], mx.array]


class LayerCache(Protocol):
    """What one attention layer sees of a cache."""

    @property
    def offset(self) -> int | mx.array:
        """Position of the first new token, or one per row."""

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array:
        """Store the new keys and values, attend causally to all that are stored.

        Shapes: query: B x H_q x L x D, key and value: B x H_kv x L x D -> B x H_q x L x D.
        """


class Cache(Protocol):
    """What a model sees of a cache."""

    @property
    def layers(self) -> Sequence[LayerCache]:
        """One entry for each layer of the model."""

    def advance(self, length: int) -> None:
        """Called once, after all layers have attended: `length` more positions are stored."""


class NoCache:
    """Remembers nothing: every call attends within its own L tokens, from position 0."""

    offset = 0

    def __init__(self, num_layers: int, attention: Attention = scaled_dot_product_attention_grouped):
        self.layers = [self] * num_layers
        self._attention = attention

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array:
        return self._attention(query, key, value, scale, "causal")

    def advance(self, length: int) -> None:
        """Nothing is stored, so there is nothing to count."""
