"""A cache in pages: each request holds as many as its tokens need, wherever they lie."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx
import numpy as np

from ..attention import scaled_dot_product_attention_grouped
from ..kv_cache import Attention
from .batch import Chunk
from .batched_cache import Span, attend_each
from .cache import StepCache
from .page_pool import PagePool

__all__ = ["PageRows", "PagedKVCache", "PagedKVCacheLayer"]


@dataclass(frozen=True)
class PageRows:
    """Where the rows of a step belong.

    pages, slots: of each row, T: its page, and its place within the page. spans and tables: of each chunk; a table
    lists the pages of a request, in the order of its positions.
    """

    pages: mx.array
    slots: mx.array
    spans: Sequence[Span]
    tables: Sequence[list[int]]

    @cached_property
    def arrays(self) -> tuple[mx.array, mx.array]:
        """Tables and spans as a kernel needs them (day 4), made once for all layers.

        Shapes: R x W and R x 3, in int32. Tables are as wide as the longest; behind the end of another one stand zeros.
        """
        tables = np.zeros((len(self.tables), max(map(len, self.tables))), np.int32)
        for row, table in zip(tables, self.tables, strict=True):
            row[: len(table)] = table
        spans = [(span.first, span.last, span.length) for span in self.spans]
        return mx.array(tables), mx.array(spans, mx.int32)


class PagedKVCacheLayer:
    """The keys and values of one layer, in pages.

    keys, values: P x H_kv x page_size x D, or None before the first token.
    """

    def __init__(self, num_pages: int, page_size: int, attention: Attention = scaled_dot_product_attention_grouped):
        self.num_pages, self.page_size = num_pages, page_size
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self._attention = attention

    def store(self, key: mx.array, value: mx.array, pages: mx.array, slots: mx.array) -> None:
        """Write row t's key and value to place slots[t] of page pages[t], over what may be there.

        The first call makes the arrays, of the dtype that key and value have.
        Shapes: key and value: T x H_kv x 1 x D, pages and slots: T, integers.

        Task: w3d3.3
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 3: PagedKVCacheLayer.store is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.3"
        )

    def gather(self, table: list[int], length: int) -> tuple[mx.array, mx.array]:
        """The first `length` positions of a request, side by side: copies of what is in its pages.

        table: the request's pages, in the order of its positions; there may be more of them than `length` needs.
        Shapes: -> twice 1 x H_kv x length x D.

        Task: w3d3.3
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 3: PagedKVCacheLayer.gather is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.3"
        )

    def copy_page(self, source: int, target: int) -> None:
        """Write what is in one page over what is in another."""
        for stored in (self.keys, self.values):
            if stored is not None:
                page = mx.contiguous(stored[source])
                mx.eval(page)  # so that nobody reads the old array any more, and it need not be copied
                stored[target] = page

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None, rows: PageRows) -> mx.array:
        """As `RowsLayer` says."""
        self.store(key, value, rows.pages, rows.slots)
        stored = [self.gather(table, span.length) for span, table in zip(rows.spans, rows.tables, strict=True)]
        return attend_each(self._attention, query, stored, rows.spans, scale)


class PagedKVCache:
    """Keys and values of requests, in the pages of a pool. A `RequestCache`.

    A page has room for `pool.page_size` positions of one request, in every layer.
    tables: of each request its pages, in the order of its positions.
    """

    def __init__(
        self,
        num_layers: int,
        pool: PagePool,
        attention: Attention = scaled_dot_product_attention_grouped,
    ):
        self.pool = pool
        self.capacity = pool.num_pages * pool.page_size
        self.layers = self.make_layers(num_layers, attention)
        self.tables: dict[str, list[int]] = {}
        self._lengths: dict[str, int] = {}

    def make_layers(self, num_layers: int, attention: Attention) -> Sequence[PagedKVCacheLayer]:
        """The layers that this cache consists of."""
        pool = self.pool
        return [PagedKVCacheLayer(pool.num_pages, pool.page_size, attention) for _ in range(num_layers)]

    def length(self, id: str) -> int:
        return self._lengths[id]

    def can_open(self, tokens: Sequence[int]) -> bool:
        return self.pool.pages_for(len(tokens)) <= self.pool.num_free

    def open(self, id: str, tokens: Sequence[int]) -> None:
        self.tables[id], self._lengths[id] = [], 0

    def missing(self, id: str, count: int) -> int:
        """How many pages a request needs besides those it has, for `count` more positions.

        Task: w3d3.2
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 2: PagedKVCache.missing is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.2"
        )

    def can_extend(self, id: str, count: int) -> bool:
        return self.missing(id, count) <= self.pool.num_free

    def extend(self, id: str, tokens: Sequence[int]) -> None:
        """Count these tokens' positions, and take as many pages from the pool as the last one's room is too small for.

        Raises:
            OutOfPagesError: of the pool. Nothing has changed then.

        Task: w3d3.2
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 2: PagedKVCache.extend is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.2"
        )

    def trim(self, id: str, count: int) -> None:
        """Forget the last `count` positions, and give back each page in which none is left.

        Task: w3d3.2
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 2: PagedKVCache.trim is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.2"
        )

    def close(self, id: str) -> None:
        """Forget a request, and give back its pages.

        Task: w3d3.2
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 2: PagedKVCache.close is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.2"
        )

    def step(self, chunks: Sequence[Chunk]) -> StepCache[PageRows]:
        """As `RequestCache` says: where each row belongs, and which pages each chunk's request has.

        Task: w3d3.3
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 3: PagedKVCache.step is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.3"
        )

    def check_integrity(self, lengths: Mapping[str, int]) -> None:
        assert self._lengths == lengths, f"stored are {self._lengths}, expected {dict(lengths)}"
        for id, table in self.tables.items():
            expected = self.pool.pages_for(self._lengths[id])
            assert len(table) == expected, f"{id!r} has {len(table)} pages, and needs {expected}"
        self.pool.check_integrity(self.held())

    def held(self) -> Mapping[int, int]:
        """How many hold each page that this cache knows of."""
        return Counter(page for table in self.tables.values() for page in table)
