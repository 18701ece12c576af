"""A paged cache: each request holds as many pages as its tokens need, wherever these pages are in memory."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx
import numpy as np

from ..attention import scaled_dot_product_attention_grouped
from ..kernels.paged_attention import paged_attention, store_pages
from ..kv_cache import Attention
from .batch import Chunk
from .batched_cache import Span, attend_each
from .cache import StepCache, Stored
from .page_pool import PagePool

__all__ = ["KernelPagedKVCacheLayer", "PageRows", "PagedKVCache", "PagedKVCacheLayer", "Prefixes"]


@dataclass(frozen=True)
class PageRows:
    """The pages and positions of a step's rows.

    positions, pages, places: for each of the T rows, its position, its page, and its place in that page.
    spans, tables: for each chunk, its span, and a table that lists its request's pages in the order of positions.
    """

    positions: mx.array
    pages: mx.array
    places: mx.array
    spans: Sequence[Span]
    tables: Sequence[Sequence[int]]

    @cached_property
    def arrays(self) -> tuple[mx.array, mx.array]:
        """Return tables and spans as arrays for a kernel (day 4). All layers of a step share these arrays.

        Shapes: -> R x W and R x 3, int32, for R chunks. W is the longest table's length; zeros fill up shorter tables.
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

    def store(self, key: mx.array, value: mx.array, pages: mx.array, places: mx.array) -> None:
        """Write row t's key and value to place `places[t]` of page `pages[t]`, overwriting any older key and value.

        The first call makes the arrays `keys` and `values`, with the dtypes of key and value.
        Shapes: key and value: T x H_kv x 1 x D, pages and places: T, integers.

        Task: w3d3.3
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 3: PagedKVCacheLayer.store is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.3"
        )

    def gather(self, table: list[int], length: int) -> tuple[mx.array, mx.array]:
        """Return copies of a request's first `length` keys and values, in the order of positions, from its pages.

        table: the request's pages, in the order of its positions; there may be more pages than `length` needs.
        Shapes: -> keys and values: 1 x H_kv x length x D.

        Task: w3d3.3
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 3: PagedKVCacheLayer.gather is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.3"
        )

    def copy_page(self, source: int, target: int) -> None:
        """Copy the keys and values in page `source` to page `target`."""
        for stored in (self.keys, self.values):
            if stored is not None:
                page = mx.contiguous(stored[source])
                mx.eval(page)  # so that nothing reads the old array any more, and MLX need not copy it
                stored[target] = page

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None, rows: PageRows) -> mx.array:
        """Store all keys and values, then let each row attend to its own request, as `RowsLayer.attend` says."""
        self.store(key, value, rows.pages, rows.places)
        stored = [self.gather(list(table), span.length) for span, table in zip(rows.spans, rows.tables, strict=True)]
        return attend_each(self._attention, query, stored, rows.spans, scale)


class KernelPagedKVCacheLayer(PagedKVCacheLayer):
    """The layer of day 4, which stores and reads keys and values in place: one kernel call stores all rows of a step,
    and another call computes attention.

    If no kernels are built, MLX's operations compute the result, but copy as much data as `PagedKVCacheLayer` does.
    """

    def store(self, key: mx.array, value: mx.array, pages: mx.array, places: mx.array) -> None:
        if self.keys is None or self.values is None:
            _, H_kv, _, D = key.shape
            shape = (self.num_pages, H_kv, self.page_size, D)
            self.keys, self.values = mx.zeros(shape, key.dtype), mx.zeros(shape, value.dtype)
        self.keys, self.values = store_pages(self.keys, self.values, key.squeeze(2), value.squeeze(2), pages, places)

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None, rows: PageRows) -> mx.array:
        self.store(key, value, rows.pages, rows.places)
        assert self.keys is not None
        assert self.values is not None
        return paged_attention(query.squeeze(2), self.keys, self.values, *rows.arrays, scale)[:, :, None]


class Prefixes:
    """An object that remembers, for later requests, the pages that a step filled. This class remembers nothing."""

    def open(self, cache: "PagedKVCache", stored: Stored) -> bool:
        """Share the remembered pages of a request's text, and reserve the others, as `RequestCache.open` says."""
        return cache.reserve(stored, len(stored.tokens))

    def keep(self, stored: Stored) -> None:
        """Remember the pages of a request's computed tokens."""

    def evict(self, count: int) -> None:
        """Forget, and so free, `count` pages that no request holds, or all such pages if there are fewer."""

    def held(self) -> Sequence[int]:
        """Return the remembered pages. The pool counts this object as one holder of each remembered page."""
        return ()


class PagedKVCache:
    """A `RequestCache` that holds keys and values in the pages of a pool.

    A page has room for `pool.page_size` positions of one request, in every layer. A request's `pages` are in the order
    of its positions.
    prefixes: an object that remembers the pages of earlier requests' texts (day 5). make_layer: a function that makes a
    layer from a number of pages and a page size (day 4).
    """

    def __init__(
        self,
        num_layers: int,
        pool: PagePool,
        prefixes: Prefixes | None = None,
        make_layer: Callable[[int, int], PagedKVCacheLayer] = PagedKVCacheLayer,
    ):
        self.pool = pool
        self.prefixes = Prefixes() if prefixes is None else prefixes
        self.capacity = pool.num_pages * pool.page_size
        self.layers = [make_layer(pool.num_pages, pool.page_size) for _ in range(num_layers)]

    def open(self, stored: Stored) -> bool:
        return self.prefixes.open(self, stored)

    def reserve(self, stored: Stored, count: int) -> bool:
        """Reserve room for `count` positions beyond the computed positions: take from the pool the pages that the
        request lacks, and append them to the request's pages.

        If too few pages are free, first call `prefixes.evict` to free the missing pages. Return False if there are
        still too few pages; then the request's pages have not changed.

        Task: w3d3.2
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 2: PagedKVCache.reserve is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.2"
        )

    def commit(self, stored: Stored, num_computed_tokens: int) -> None:
        """Count the first num_computed_tokens tokens as computed, and call `prefixes.keep`. Then give back the last
        pages if the request's tokens, computed or not, do not need these pages: after rejected guesses, for example.

        Task: w3d3.2
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 2: PagedKVCache.commit is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.2"
        )

    def close(self, stored: Stored) -> None:
        """Give back all pages of a request. Afterwards, the request has no pages and no computed tokens.

        Task: w3d3.2
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 2: PagedKVCache.close is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.2"
        )

    def step(self, chunks: Sequence[Chunk]) -> StepCache:
        """Return the cache of a step, as `RequestCache.step` says. The cache's `PageRows` contains the page and the
        place of each row, and the pages of each chunk's request.

        Task: w3d3.3
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 3: PagedKVCache.step is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.3"
        )

    def copy_page(self, source: int, target: int) -> None:
        """Copy the keys and values in page `source` to page `target`, in all layers."""
        for layer in self.layers:
            layer.copy_page(source, target)

    def check_integrity(self, held: Collection[Stored]) -> None:
        for stored in held:
            needed = self.pool.pages_for(stored.num_computed_tokens)
            assert len(stored.pages) >= needed, f"{needed} pages are computed, and {len(stored.pages)} held"
            assert len(set(stored.pages)) == len(stored.pages), f"a page is listed twice: {stored.pages}"
        holders = [*(stored.pages for stored in held), self.prefixes.held()]
        self.pool.check_integrity(Counter(page for pages in holders for page in pages))
