"""The cache seam: the interface through which a model finds stored keys and values, and the tokens' positions."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import mlx.core as mx

from .attention import scaled_dot_product_attention_grouped

__all__ = ["Attention", "Cache", "KVCache", "KVCacheLayer", "LayerCache", "NoCache"]

Attention: TypeAlias = Callable[[mx.array, mx.array, mx.array, "float | None", "mx.array | str | None"], mx.array]


class LayerCache(Protocol):
    """The part of a cache that one attention layer uses."""

    @property
    def offset(self) -> int | mx.array:
        """Return the position of the first new token, or an array with one position per row."""

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array:
        """Store the new keys and values, then attend causally to all stored positions.

        Shapes: query: B x H_q x L x D, key and value: B x H_kv x L x D -> B x H_q x L x D.
        """


class Cache(Protocol):
    """The interface of a cache that a model uses."""

    @property
    def layers(self) -> Sequence[LayerCache]:
        """Return one `LayerCache` for each layer of the model."""

    def advance(self, length: int) -> None:
        """Count `length` more positions as stored. The model calls this method once per pass, after the last layer."""


class NoCache:
    """A cache that remembers nothing: every call attends within its own L tokens, from position 0."""

    offset = 0

    def __init__(self, num_layers: int, attention: Attention = scaled_dot_product_attention_grouped):
        self.layers = [self] * num_layers
        self._attention = attention

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array:
        return self._attention(query, key, value, scale, "causal")

    def advance(self, length: int) -> None:
        """Do nothing: this cache stores nothing, so there is nothing to count."""


class KVCacheLayer:
    """The keys and values of all tokens so far in one layer, in arrays that have room for more tokens.

    keys, values: arrays of B x H_kv x capacity x D, or None before the first token; positions from `offset` on are
    unused.
    offset: the number of stored positions. Only `advance` and `trim` of `KVCache` change this number, not `store` or
    `attend`, because RoPE and attention of one forward pass need the same offset.
    step: the capacity is always a multiple of this number, so most tokens need no new arrays.
    attention: the attention function, which is called with the mask "causal".
    """

    def __init__(self, step: int = 256, attention: Attention = scaled_dot_product_attention_grouped):
        self.step = step
        self.offset = 0
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self._attention = attention

    def store(self, key: mx.array, value: mx.array) -> tuple[mx.array, mx.array]:
        """Write keys and values to the L positions from `offset` on, overwriting older keys and values. Return the keys
        and values of all offset + L positions.

        If there are no arrays yet, or the new positions do not fit, `keys` and `values` become new arrays that begin
        with the stored positions. The new capacity is offset + L, rounded up to a multiple of `step`. Otherwise the
        arrays stay, and only the L new positions are written. `offset` does not change.
        Shapes: key and value: B x H_kv x L x D -> keys and values: B x H_kv x (offset + L) x D. The dtype is kept.

        Raises:
            ValueError: key and value differ in shape or dtype, or differ in B, H_kv, D or dtype from the arrays in this
                object, even if `offset` is 0 again. `_check_new` (given) raises this error.

        Task: w2d1.1
        """
        _check_new(key, value, self.keys)
        raise NotImplementedError(
            "Week 2 Day 1 Task 1: KVCacheLayer.store is yours to write. "
            "Chapter: The KV cache. "
            "Test: ./course test w2d1.1"
        )

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array:
        """Store the new keys and values, then attend causally to all stored positions, with the layer's `attention`.

        scale: passed to `attention` unchanged.
        Shapes: query: B x H_q x L x D, key and value: B x H_kv x L x D -> B x H_q x L x D.

        Task: w2d1.2
        """
        raise NotImplementedError(
            "Week 2 Day 1 Task 2: KVCacheLayer.attend is yours to write. "
            "Chapter: The KV cache. "
            "Test: ./course test w2d1.2"
        )


class KVCache:
    """The keys and values of every layer, kept so that a model runs on new tokens only.

    offset: the number of stored tokens, the same in all layers; this is also the position of the next token.
    """

    def __init__(self, num_layers: int, step: int = 256, attention: Attention = scaled_dot_product_attention_grouped):
        self.layers = [KVCacheLayer(step, attention) for _ in range(num_layers)]

    @property
    def offset(self) -> int:
        return self.layers[0].offset

    def advance(self, length: int) -> None:
        """Count `length` more tokens as stored, in every layer.

        Task: w2d1.2
        """
        raise NotImplementedError(
            "Week 2 Day 1 Task 2: KVCache.advance is yours to write. Chapter: The KV cache. Test: ./course test w2d1.2"
        )

    def trim(self, length: int) -> None:
        """Forget the last `length` tokens, in every layer. The arrays keep their size and their content.

        Raises:
            ValueError: length is negative, or larger than `offset`. `_check_trim` (given) raises this error.

        Task: w2d1.2
        """
        _check_trim(length, self.offset)
        raise NotImplementedError(
            "Week 2 Day 1 Task 2: KVCache.trim is yours to write. Chapter: The KV cache. Test: ./course test w2d1.2"
        )


def _check_new(key: mx.array, value: mx.array, stored: mx.array | None) -> None:
    like = key if stored is None else stored
    expected = (*like.shape[:2], key.shape[2], like.shape[3])
    for name, new in {"key": key, "value": value}.items():
        if (new.shape, new.dtype) != (expected, like.dtype):
            raise ValueError(f"{name}: expected shape {expected} in {like.dtype}, got {new.shape} in {new.dtype}")


def _check_trim(length: int, offset: int) -> None:
    if not 0 <= length <= offset:
        raise ValueError(f"trim: expected 0 to {offset} tokens, got {length}")
