"""Pages that requests share because their texts begin with the same tokens."""

from collections.abc import Sequence

from .cache import Stored
from .page_pool import PagePool
from .paged_cache import PagedKVCache, Prefixes
from .prefix_tree import PrefixTree

__all__ = ["PrefixCache"]


class PrefixCache(Prefixes):
    """A `Prefixes` that finds a page by its tokens, even after the request that filled the page has finished.

    This cache shares only pages full of committed tokens, so nothing is ever written to a page with several holders.
    tree: the tree of all known pages.
    """

    def __init__(self, pool: PagePool):
        self.pool = pool
        self.tree = PrefixTree(pool)

    def open(self, cache: PagedKVCache, stored: Stored) -> bool:
        """Reserve room for all tokens of a new request, which shares the pages that hold the longest known beginning of
        its text. Return False if there is no room; then nothing has changed, except that the tree may have lost pages.

        Pass all tokens but the last to `match`, because the model must run on at least one token. The request shares
        the whole pages that `match` finds. If `match` also finds a page that matches in part, copy that page to the
        first page after the shared pages (copy-on-write). `cache.reserve` reserves all pages but the shared ones, and
        `cache.copy_page` copies a page. To make room, `reserve` may evict the page that you are about to copy, or even
        give this page to the request itself. Neither case matters, because nothing is written to the page until the
        next step. num_computed_tokens becomes the number of positions that `match` found.

        Task: w3d5.4
        """
        raise NotImplementedError(
            "Week 3 Day 5 Task 4: PrefixCache.open is yours to write. "
            "Chapter: A prefix cache. "
            "Test: ./course test w3d5.4"
        )

    def keep(self, stored: Stored) -> None:
        """Insert a request's pages that are full of computed tokens into the tree, unless the tree knows these pages.
        Replace the request's pages with the pages that `insert` returns.

        The last full page shows whether the tree knows all full pages: if the request is the only holder of that page,
        the tree does not know the page.

        Task: w3d5.4
        """
        raise NotImplementedError(
            "Week 3 Day 5 Task 4: PrefixCache.keep is yours to write. "
            "Chapter: A prefix cache. "
            "Test: ./course test w3d5.4"
        )

    def evict(self, count: int) -> None:
        self.tree.evict(count)

    def held(self) -> Sequence[int]:
        self.tree.check_integrity()
        return [node.page for node in self.tree.root]
