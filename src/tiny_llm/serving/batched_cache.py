"""A cache with a slot for each running request: as many positions for each as the longest may need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

from ..attention import scaled_dot_product_attention_grouped
from ..kv_cache import Attention
from .batch import Chunk
from .cache import StepCache

__all__ = ["BatchedKVCache", "BatchedKVCacheLayer", "SlotRows", "Span", "attend_each"]


@dataclass(frozen=True)
class Span:
    """Rows first to last of a step, which are one request's: its positions up to `length`, the last of them new."""

    first: int
    last: int
    length: int

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> list["Span"]:
        """The span of each chunk, one behind the other."""
        ends = [sum(len(chunk.tokens) for chunk in chunks[: i + 1]) for i in range(len(chunks))]
        return [cls(end - len(chunk.tokens), end, chunk.end) for end, chunk in zip(ends, chunks, strict=True)]


@dataclass(frozen=True)
class SlotRows:
    """Where the rows of a step belong. slots, positions: of each row, T. spans and slot_of_span: of each chunk."""

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
    """Each request's rows attend causally to what is stored of that request, and to nothing else.

    Shapes: query: T x H_q x 1 x D -> T x H_q x 1 x D. stored: of each span keys and values, 1 x H_kv x length x D.
    attention: takes 1 x H_q x L x D, keys, values, `scale` as it is, and the mask "causal". It is called once for each
        span, with all its rows.

    Task: w3d1.2
    """
    raise NotImplementedError(
        "Week 3 Day 1 Task 2: attend_each is yours to write. Chapter: Continuous batching. Test: ./course test w3d1.2"
    )


class BatchedKVCacheLayer:
    """The keys and values of one layer, of all slots.

    keys, values: slots x H_kv x capacity x D, or None before the first token.
    """

    def __init__(self, num_slots: int, capacity: int, attention: Attention = scaled_dot_product_attention_grouped):
        self.num_slots, self.capacity = num_slots, capacity
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self._attention = attention

    def store(self, key: mx.array, value: mx.array, slots: mx.array, positions: mx.array) -> None:
        """Write row t's key and value to position positions[t] of slot slots[t], over what may be there.

        The first call makes the arrays, of the dtype that key and value have.
        Shapes: key and value: T x H_kv x 1 x D, slots and positions: T, integers.

        Task: w3d1.2
        """
        raise NotImplementedError(
            "Week 3 Day 1 Task 2: BatchedKVCacheLayer.store is yours to write. "
            "Chapter: Continuous batching. "
            "Test: ./course test w3d1.2"
        )

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None, rows: SlotRows) -> mx.array:
        """As `RowsLayer` says: store all rows, then let each request's rows attend to that request's slot.

        Task: w3d1.2
        """
        raise NotImplementedError(
            "Week 3 Day 1 Task 2: BatchedKVCacheLayer.attend is yours to write. "
            "Chapter: Continuous batching. "
            "Test: ./course test w3d1.2"
        )


class BatchedKVCache:
    """Keys and values of up to `num_slots` requests, of up to `capacity` positions each. A `RequestCache`."""

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
        self._slots: dict[str, int] = {}
        self._lengths: dict[str, int] = {}

    def slot(self, id: str) -> int:
        """Which slot a request has."""
        return self._slots[id]

    def length(self, id: str) -> int:
        return self._lengths[id]

    def can_open(self, tokens: Sequence[int]) -> bool:
        return bool(self._free) and len(tokens) <= self.capacity

    def open(self, id: str, tokens: Sequence[int]) -> None:
        self._slots[id] = self._free.pop(0)
        self._lengths[id] = 0

    def can_extend(self, id: str, count: int) -> bool:
        return self._lengths[id] + count <= self.capacity

    def extend(self, id: str, tokens: Sequence[int]) -> None:
        assert self.can_extend(id, len(tokens)), f"no room for {len(tokens)} more positions of {id!r}"
        self._lengths[id] += len(tokens)

    def trim(self, id: str, count: int) -> None:
        self._lengths[id] -= count

    def close(self, id: str) -> None:
        del self._lengths[id]
        self._free.append(self._slots.pop(id))

    def step(self, chunks: Sequence[Chunk]) -> StepCache[SlotRows]:
        slots = [self._slots[chunk.request.id] for chunk in chunks]
        of_rows = [slot for slot, chunk in zip(slots, chunks, strict=True) for _ in chunk.tokens]
        positions = [position for chunk in chunks for position in range(chunk.start, chunk.end)]
        return StepCache(self.layers, chunks, SlotRows(mx.array(of_rows), mx.array(positions), Span.of(chunks), slots))

    def check_integrity(self, lengths: Mapping[str, int]) -> None:
        assert self._lengths == lengths, f"stored are {self._lengths}, expected {lengths}"
        assert self._slots.keys() == self._lengths.keys(), "a request without a slot, or a slot without a request"
        slots = sorted([*self._free, *self._slots.values()])
        assert slots == list(range(self.num_slots)), f"a slot is lost, or has two owners: {slots}"


def _check_sizes(num_slots: int, capacity: int) -> None:
    if num_slots < 1 or capacity < 2:
        raise ValueError(f"expected 1 slot or more, of 2 positions or more, got {num_slots} of {capacity}")
