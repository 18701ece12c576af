"""Pages that requests share because their texts begin alike."""

from collections.abc import Sequence

from .cache import Stored
from .page_pool import PagePool
from .paged_cache import PagedKVCache, Prefixes
from .prefix_tree import PrefixTree

__all__ = ["PrefixCache"]


class PrefixCache(Prefixes):
    """A `Prefixes` that finds pages by their tokens, while the request that filled them runs and after it is over.

    It remembers only whole pages of committed tokens. So no page with several holders is ever written.
    tree: the tree of all known pages.
    """

    def __init__(self, pool: PagePool):
        self.pool = pool
        self.tree = PrefixTree(pool)

    def open(self, cache: PagedKVCache, stored: Stored) -> bool:
        """Reserve room for all tokens of a new request, which shares the pages of its text's longest known beginning.
        Return False if there is no room; then nothing has changed, except that the tree may have given up pages.

        Look for all tokens but the last, because the model must run on at least one token. The request shares the whole
        pages that `match` finds. If `match` also finds a page in part, the request gets a copy of that page, as the
        page after the shared ones (copy-on-write). `cache.reserve` reserves everything but the shared pages, and
        `cache.copy_page` copies. `reserve` may just have given up the page that is copied, or even have given it to the
        request itself; neither matters, because nothing is written into the page until the next step.
        num_computed_tokens becomes the number of positions that `match` found.

        Task: w3d5.4
        """
        raise NotImplementedError(
            "Week 3 Day 5 Task 4: PrefixCache.open is yours to write. "
            "Chapter: A prefix cache. "
            "Test: ./course test w3d5.4"
        )

    def keep(self, stored: Stored) -> None:
        """Put a request's pages that are full of computed tokens into the tree, unless the tree knows them. The request
        then has the pages that `insert` returns.

        The last full page shows whether the tree knows all of them: if the request is the only holder of this page, the
        tree does not.

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
