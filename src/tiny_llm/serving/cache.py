"""The interfaces between the engine and a cache, and between a cache and the model. Given.

A step computes T tokens of several requests, any number per request. The model runs on T rows of one token (B = T,
L = 1), each with a position of its own: RoPE takes one offset per row, and all layers except attention work on single
tokens anyway. Only attention needs to know which rows belong to the same request; the cache takes care of attention.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx

from ..kv_cache import Cache
from .batch import Chunk

__all__ = ["RequestCache", "RowsLayer", "StepCache", "Stored"]


class Stored(Protocol):
    """Tokens whose keys and values a cache holds: a `Request`, or a drafter's copy of a request.

    pages: the pages in which the cache holds the keys and values. num_computed_tokens: how many tokens have keys and
    values in these pages; positions that are only reserved, or that were written but not committed, do not count.
    """

    pages: list[int]
    num_computed_tokens: int

    @property
    def tokens(self) -> Sequence[int]: ...


class RequestCache(Protocol):
    """A cache for the keys and values of requests that come and go.

    A step reserves room, computes keys and values, and commits them. A later step overwrites positions that were
    reserved but not committed, so a step that fails leaves nothing to undo.
    capacity: how many positions a request can have at most, if it is the only request.
    """

    capacity: int

    def open(self, stored: Stored) -> bool:
        """Reserve room for all tokens of one more request. If there is no room, change nothing and return False.

        num_computed_tokens becomes the number of tokens at the start of the request whose keys and values are in the
        cache already, left there by earlier requests (day 5). Until day 5, num_computed_tokens becomes 0.
        """

    def reserve(self, stored: Stored, count: int) -> bool:
        """Reserve room for `count` positions beyond the computed positions. If there is no room, change nothing and
        return False."""

    def commit(self, stored: Stored, num_computed_tokens: int) -> None:
        """Count the first num_computed_tokens tokens as computed. Free the room that no token of the request
        needs."""

    def close(self, stored: Stored) -> None:
        """Free all the room reserved for a request that leaves the cache."""

    def step(self, chunks: Sequence[Chunk]) -> Cache:
        """Return the cache with which the model computes these chunks, as T rows of one token. The caller has reserved
        room for the chunks."""

    def check_integrity(self, held: Collection[Stored]) -> None:
        """Raise AssertionError unless exactly the requests in `held` have room, each for all its computed tokens."""


class RowsLayer(Protocol):
    """The keys and values of one layer, for rows of many requests."""

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None, rows: Any) -> mx.array:
        """Store the keys and values of all rows, then let each row attend to its own request, up to its own position.

        Shapes: query: T x H_q x 1 x D, key and value: T x H_kv x 1 x D -> T x H_q x 1 x D.
        """


@dataclass(frozen=True)
class _StepLayer:
    """A layer during one step: a `LayerCache` of T rows."""

    layer: RowsLayer
    rows: Any

    @property
    def offset(self) -> mx.array:
        """Return the position of each row, as an array of T integers."""
        positions: mx.array = self.rows.positions
        return positions

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None = None) -> mx.array:
        return self.layer.attend(query, key, value, scale, self.rows)


class StepCache:
    """The model's cache during one step.

    rows: a `SlotRows` or `PageRows`, which holds the `positions` of the step's rows, and their slots or pages.
    """

    def __init__(self, layers: Sequence[RowsLayer], rows: Any):
        self.layers = [_StepLayer(layer, rows) for layer in layers]

    def advance(self, length: int) -> None:
        """Do nothing: `RequestCache.commit` counts the computed tokens, for each request separately."""
