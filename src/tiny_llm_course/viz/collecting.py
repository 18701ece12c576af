"""A cache that records the attention weights of a model, without any change to the model."""

from __future__ import annotations

import mlx.core as mx

from ..model.package_protocols import Cache, LayerCache

__all__ = ["CollectingCache"]


class CollectingCache:
    """A cache that passes each call on to another cache, and records the attention weights of every layer.

    `layers[i].weights` contains the weights of layer i (B x H_q x L x S).

    cache: the other cache, from the package whose attention is shown, such as that package's NoCache.
    """

    def __init__(self, cache: Cache):
        self._cache = cache
        self.layers = [_Layer(layer) for layer in cache.layers]

    def advance(self, length: int) -> None:
        self._cache.advance(length)


class _Layer:
    def __init__(self, layer: LayerCache):
        self._layer = layer
        self.weights: mx.array | None = None

    @property
    def offset(self) -> int | mx.array:
        return self._layer.offset

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array:
        self.weights = self._read_off(query.astype(mx.float32), key.astype(mx.float32), scale)
        return self._layer.attend(query, key, value, scale)

    def _read_off(self, query: mx.array, key: mx.array, scale: float | None) -> mx.array:
        """Compute the weights with the layer's own attention. With unit vectors as values, the attention's
        output equals the weights.

        Shapes: query: B x H_q x L x D, key: B x H_kv x S x D -> B x H_q x L x S.
        """
        *_, S, D = key.shape
        columns = []
        for first in range(0, S, D):
            units = mx.broadcast_to(mx.eye(S, D, k=-first), key.shape)  # value number `first + j` is 1 in column j
            columns.append(self._layer.attend(query, key, units, scale)[..., : S - first])
        return mx.concatenate(columns, axis=-1)
