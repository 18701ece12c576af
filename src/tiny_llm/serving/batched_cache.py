"""A cache with a slot for each running request. A slot has as many positions as the longest request may need."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

import mlx.core as mx

from ..attention import scaled_dot_product_attention_grouped
from ..kv_cache import Attention
from .batch import Chunk
from .cache import StepCache, Stored

__all__ = ["BatchedKVCache", "BatchedKVCacheLayer", "SlotRows", "Span", "attend_each"]


@dataclass(frozen=True)
class Span:
    """A request's rows in a step, `first` up to `last`. They are the newest of the request's `length` positions."""

    first: int
    last: int
    length: int

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> list["Span"]:
        """Return the span of each chunk. Each span begins at the row where the previous span ends."""
        ends = accumulate(len(chunk.tokens) for chunk in chunks)
        return [cls(end - len(chunk.tokens), end, chunk.end) for end, chunk in zip(ends, chunks, strict=True)]


@dataclass(frozen=True)
class SlotRows:
    """The slots and positions where a step stores the keys and values of its rows. slots, positions: the slot and the
    position of each of the T rows. spans, slot_of_span: the span and the slot of each chunk."""

    slots: mx.array
    positions: mx.array
    spans: Sequence[Span]
    slot_of_span: Sequence[int]


def attend_each(
    attention: Attention,
    query: mx.array,
    stored: Sequence[tuple[mx.array, mx.array]],
    spans: Sequence[Span],
    scale: float | None,
) -> mx.array:
    """Let each request's rows attend causally to the stored keys and values of that request, and to nothing else.

    Shapes: query: T x H_q x 1 x D -> T x H_q x 1 x D. stored: the keys and values of each span, 1 x H_kv x length x D.
    attention: a function of the queries (1 x H_q x L x D), the keys, the values, the unchanged `scale`, and the mask
        "causal". Call this function once per span, with all rows of the span.

    Task: w3d1.2
    """
    raise NotImplementedError(
        "Week 3 Day 1 Task 2: attend_each is yours to write. Chapter: Continuous batching. Test: ./course test w3d1.2"
    )


class BatchedKVCacheLayer:
    """The keys and values of one layer, in all slots.

    keys, values: slots x H_kv x capacity x D, or None before the first token.
    """

    def __init__(self, num_slots: int, capacity: int, attention: Attention = scaled_dot_product_attention_grouped):
        self.num_slots, self.capacity = num_slots, capacity
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self._attention = attention

    def store(self, key: mx.array, value: mx.array, slots: mx.array, positions: mx.array) -> None:
        """Write row t's key and value to position `positions[t]` of slot `slots[t]`, replacing older keys and values.

        The first call makes the arrays `keys` and `values`, with the dtypes of key and value.
        Shapes: key and value: T x H_kv x 1 x D, slots and positions: T, integers.

        Task: w3d1.2
        """
        raise NotImplementedError(
            "Week 3 Day 1 Task 2: BatchedKVCacheLayer.store is yours to write. "
            "Chapter: Continuous batching. "
            "Test: ./course test w3d1.2"
        )

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None, rows: SlotRows) -> mx.array:
        """Store all keys and values, then let each row attend to its request's slot, as `RowsLayer.attend` says.

        Task: w3d1.2
        """
        raise NotImplementedError(
            "Week 3 Day 1 Task 2: BatchedKVCacheLayer.attend is yours to write. "
            "Chapter: Continuous batching. "
            "Test: ./course test w3d1.2"
        )


class BatchedKVCache:
    """A `RequestCache` that holds up to `num_slots` requests, of up to `capacity` positions each.

    A request's `pages` lists a single page: its slot, which has room for all positions of the request.
    """

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        capacity: int,
        attention: Attention = scaled_dot_product_attention_grouped,
    ):
        _check_sizes(num_slots, capacity)
        self.capacity = capacity
        self.num_slots = num_slots
        self.layers = [BatchedKVCacheLayer(num_slots, capacity, attention) for _ in range(num_layers)]
        self._free = list(range(num_slots))

    def open(self, stored: Stored) -> bool:
        if not self._free or len(stored.tokens) > self.capacity:
            return False
        stored.pages = [self._free.pop(0)]
        return True

    def reserve(self, stored: Stored, count: int) -> bool:
        return stored.num_computed_tokens + count <= self.capacity

    def commit(self, stored: Stored, num_computed_tokens: int) -> None:
        stored.num_computed_tokens = num_computed_tokens

    def close(self, stored: Stored) -> None:
        self._free += stored.pages
        stored.pages, stored.num_computed_tokens = [], 0

    def step(self, chunks: Sequence[Chunk]) -> StepCache:
        slots = [chunk.pages[0] for chunk in chunks]
        of_rows = [slot for slot, chunk in zip(slots, chunks, strict=True) for _ in chunk.tokens]
        positions = [position for chunk in chunks for position in range(chunk.start, chunk.end)]
        return StepCache(self.layers, SlotRows(mx.array(of_rows), mx.array(positions), Span.of(chunks), slots))

    def check_integrity(self, held: Collection[Stored]) -> None:
        slots = [slot for stored in held for slot in stored.pages]
        assert len(slots) == len(held), f"{len(held)} requests, which have the slots {slots}"
        every = sorted([*self._free, *slots])
        assert every == list(range(self.num_slots)), f"a slot is lost, or has two owners: {every}"


def _check_sizes(num_slots: int, capacity: int) -> None:
    if num_slots < 1 or capacity < 2:
        raise ValueError(f"expected 1 slot or more, of 2 positions or more, got {num_slots} of {capacity}")
