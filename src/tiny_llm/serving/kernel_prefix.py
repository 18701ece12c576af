"""A prefix cache whose pages are stored and read in place, by kernels: given."""

from .kernel_pages import KernelPagedKVCache
from .prefix_cache import PrefixPagedKVCache

__all__ = ["KernelPrefixPagedKVCache"]


class KernelPrefixPagedKVCache(PrefixPagedKVCache, KernelPagedKVCache):
    """What is known and shared is day 5's business, what computes with it day 4's."""
