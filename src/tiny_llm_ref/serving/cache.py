"""The cache of many requests, and how a model sees it: each token of a step is a row of its own. Given.

A step has T tokens, of several requests and of any length for each. The model gets them as T rows of one token (B = T,
L = 1), each with a position of its own: RoPE takes one offset for each row, and all else in the model works on single
tokens anyway. Only attention needs to know which rows belong together. That is the cache's business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import mlx.core as mx

from ..kv_cache import Cache
from .batch import Chunk

__all__ = ["RequestCache", "RowsLayer", "StepCache"]

_Place = TypeVar("_Place", contravariant=True)


class RequestCache(Protocol):
    """Keys and values of requests that come and go.

    capacity: how many positions one request can have at most, if it is alone.
    """

    capacity: int

    def length(self, id: str) -> int:
        """How many positions of a request are stored, or will be after the step that is planned."""

    def can_open(self, tokens: Sequence[int]) -> bool:
        """Whether there is room for one more request that has these tokens."""

    def open(self, id: str, tokens: Sequence[int]) -> None:
        """A request comes. Of its tokens nothing is stored yet, or what was found to be there: `length` says it."""

    def can_extend(self, id: str, count: int) -> bool:
        """Whether there is room for `count` more positions of a request."""

    def extend(self, id: str, tokens: Sequence[int]) -> None:
        """These tokens come next: their positions are taken, and the next step stores their keys and values."""

    def trim(self, id: str, count: int) -> None:
        """Forget the last `count` positions of a request."""

    def close(self, id: str) -> None:
        """A request leaves: all its room is free again at once."""

    def step(self, chunks: Sequence[Chunk]) -> Cache:
        """What the model gets to compute these chunks, whose positions were taken by `extend`: T rows of one token."""

    def check_integrity(self, lengths: Mapping[str, int]) -> None:
        """Raise AssertionError unless exactly these requests, with so many positions each, are stored."""


class RowsLayer(Protocol[_Place]):
    """The keys and values of one layer, for rows of many requests."""

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None, place: _Place) -> mx.array:
        """Store the keys and values of all rows; then each row attends to its own request, up to its own position.

        Shapes: query: T x H_q x 1 x D, key and value: T x H_kv x 1 x D -> T x H_q x 1 x D.
        """


@dataclass(frozen=True)
class _StepLayer(Generic[_Place]):
    """One layer of a `StepCache`: a `LayerCache` of T rows."""

    layer: RowsLayer[_Place]
    offset: mx.array
    place: _Place

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array:
        return self.layer.attend(query, key, value, scale, self.place)


class StepCache(Generic[_Place]):
    """A step's rows as the model's cache.

    place: what a layer needs to know of them, the same for all layers.
    """

    def __init__(self, layers: Sequence[RowsLayer[_Place]], chunks: Sequence[Chunk], place: _Place):
        positions = mx.array([position for chunk in chunks for position in range(chunk.start, chunk.end)])  # T
        self.layers = [_StepLayer(layer, positions, place) for layer in layers]

    def advance(self, length: int) -> None:
        """Nothing: `RequestCache.extend` has counted the positions already, of each request its own number."""
