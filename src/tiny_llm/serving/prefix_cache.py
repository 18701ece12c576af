"""Pages that requests share: beginnings of texts that were computed before, for any request."""

from collections.abc import Sequence

from .cache import Stored
from .page_pool import PagePool
from .paged_cache import PagedKVCache, Prefixes
from .prefix_tree import PrefixTree

__all__ = ["PrefixCache"]


class PrefixCache(Prefixes):
    """The `Prefixes` of a `PagedKVCache`: it finds pages by their tokens, while a request runs and after it is over.

    Only what was committed is remembered, and only whole pages are. So no page with several holders is ever written.
    tree: the pages that are known.
    """

    def __init__(self, pool: PagePool):
        self.pool = pool
        self.tree = PrefixTree(pool)

    def open(self, cache: PagedKVCache, stored: Stored) -> bool:
        """Reserve room for all tokens of a new request, which shares the pages of the longest known beginning of them.
        Return False if there is no room; then nothing has changed, except that the tree may have given up pages.

        The last token is not looked for, because the model has to run on at least one. Whole pages are shared. Of a
        page that is known in part, the request gets a copy, as the page after them (copy-on-write). `cache.reserve`
        reserves everything but the shared pages, and `cache.copy_page` copies. It does not matter if `reserve` has just
        given up the page that is copied, or made it the request's own: until the next step, nothing is written into it.
        num_computed_tokens becomes the number of positions that shared and copied pages hold.

        Task: w3d5.4
        """
        raise NotImplementedError(
            "Week 3 Day 5 Task 4: PrefixCache.open is yours to write. "
            "Chapter: A prefix cache. "
            "Test: ./course test w3d5.4"
        )

    def keep(self, stored: Stored) -> None:
        """Put a request's pages that are full of computed tokens into the tree, unless it knows them. The request then
        has the pages that `insert` returns.

        The last of these full pages tells whether the tree knows them: if the request is its only holder, the tree does
        not.

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
