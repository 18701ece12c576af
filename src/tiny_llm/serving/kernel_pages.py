"""A paged cache whose keys and values are stored and read in place, by kernels: given."""

from collections.abc import Sequence

import mlx.core as mx

from ..kernels.paged_attention import paged_attention, store_pages
from ..kv_cache import Attention
from .paged_cache import PagedKVCache, PagedKVCacheLayer, PageRows

__all__ = ["KernelPagedKVCache", "KernelPagedKVCacheLayer"]


class KernelPagedKVCacheLayer(PagedKVCacheLayer):
    """The keys and values of one layer, in pages. For all rows of a step there is one call of each kernel.

    Where no kernels are built, their twins do the same, and copy as much as a `PagedKVCacheLayer`.
    """

    def store(self, key: mx.array, value: mx.array, pages: mx.array, slots: mx.array) -> None:
        if self.keys is None or self.values is None:
            _, H_kv, _, D = key.shape
            shape = (self.num_pages, H_kv, self.page_size, D)
            self.keys, self.values = mx.zeros(shape, key.dtype), mx.zeros(shape, value.dtype)
        self.keys, self.values = store_pages(self.keys, self.values, key.squeeze(2), value.squeeze(2), pages, slots)

    def attend(self, query: mx.array, key: mx.array, value: mx.array, scale: float | None, rows: PageRows) -> mx.array:
        self.store(key, value, rows.pages, rows.slots)
        assert self.keys is not None
        assert self.values is not None
        return paged_attention(query.squeeze(2), self.keys, self.values, *rows.arrays, scale)[:, :, None]


class KernelPagedKVCache(PagedKVCache):
    """A `PagedKVCache` of such layers."""

    def make_layers(self, num_layers: int, attention: Attention) -> Sequence[PagedKVCacheLayer]:
        """attention: not used, since the kernel attends."""
        return [KernelPagedKVCacheLayer(self.pool.num_pages, self.pool.page_size) for _ in range(num_layers)]
