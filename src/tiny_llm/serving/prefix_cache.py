"""A paged cache that finds the beginning of a prompt among what was computed before, for whichever request."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..attention import scaled_dot_product_attention_grouped
from ..kv_cache import Attention
from .batch import Chunk
from .cache import StepCache
from .page_pool import PagePool
from .paged_cache import PagedKVCache, PageRows
from .prefix_tree import PrefixTree

__all__ = ["PrefixPagedKVCache"]


class PrefixPagedKVCache(PagedKVCache):
    """A `PagedKVCache` whose pages are found again by their tokens, while a request runs and after it is over.

    Pages that only the tree holds are as good as free: they are given up, the least recently used first, when pages are
    needed. A page that somebody else holds, too, is never written: whoever has to write into it gets a copy first
    (copy-on-write).
    tree: what is known.
    """

    def __init__(
        self,
        num_layers: int,
        pool: PagePool,
        attention: Attention = scaled_dot_product_attention_grouped,
    ):
        super().__init__(num_layers, pool, attention)
        self.tree = PrefixTree(pool)
        self._tokens: dict[str, list[int]] = {}  # of each request, those whose positions are counted: a list of its own
        self._computed: dict[str, int] = {}  # of a request's tokens, how many had been in a step
        self._remembered: dict[str, int] = {}  # and how many of its pages are in the tree

    def can_open(self, tokens: Sequence[int]) -> bool:
        for id in self.tables:
            self._remember(id)  # what the last step computed can be found already
        return self.has_room(len(tokens), *self.affordable(len(tokens), *self.tree.match(tokens[:-1])))

    def has_room(self, count: int, pages: Sequence[int], length: int) -> bool:
        """Whether there is room for `count` tokens, if these pages are shared, which hold the first `length`."""
        needed = self.pool.pages_for(count) - length // self.pool.page_size  # a copy of the last one, too
        unused = sum(self.pool.holders(page) == 1 for page in pages)  # which will no longer be as good as free
        return needed <= self.pool.num_free + self.tree.num_evictable - unused

    def affordable(self, count: int, pages: list[int], length: int) -> tuple[list[int], int]:
        """Of what `match` found for a request of `count` tokens, what it can share, and how many positions that holds.

        All of it, unless there is no room: then whole pages only. For a page that is found in part is held while it is
        copied. Without this, a request that needs the whole pool would wait for that page for ever.
        """
        if self.has_room(count, pages, length):
            return pages, length
        whole = length // self.pool.page_size
        return pages[:whole], whole * self.pool.page_size

    def open(self, id: str, tokens: Sequence[int]) -> None:
        """A request comes: it shares the pages of the longest known beginning of its tokens, the last token left out,
        since the model has to run on one at least. Of what is found, it takes what `affordable` says. `length` counts
        the positions that these pages hold, and `_tokens`, `_computed` and `_remembered` begin with them.

        Task: w3d5.4
        """
        raise NotImplementedError(
            "Week 3 Day 5 Task 4: PrefixPagedKVCache.open is yours to write. "
            "Chapter: A prefix cache. "
            "Test: ./course test w3d5.4"
        )

    def is_shared(self, id: str) -> bool:
        """Whether the next position of a request would be written into a page that somebody else holds, too."""
        return self._lengths[id] % self.pool.page_size > 0 and self.pool.holders(self.tables[id][-1]) > 1

    def missing(self, id: str, count: int) -> int:
        """As in `PagedKVCache`, and one more where the last page has to be copied."""
        return super().missing(id, count) + (count > 0 and self.is_shared(id))

    def can_extend(self, id: str, count: int) -> bool:
        missing = self.missing(id, count)
        return missing <= self.pool.num_free or missing <= self.pool.num_free + self.tree.num_evictable

    def extend(self, id: str, tokens: Sequence[int]) -> None:
        """As in `PagedKVCache`; if pages are missing, the tree gives up as many, and if the last page is shared, a copy
        takes its place: in all layers, before anything is written into it. `_tokens` grows as well.

        Raises:
            OutOfPagesError: of the pool. No page has a holder more or less then, besides those that the tree gave up.

        Task: w3d5.4
        """
        raise NotImplementedError(
            "Week 3 Day 5 Task 4: PrefixPagedKVCache.extend is yours to write. "
            "Chapter: A prefix cache. "
            "Test: ./course test w3d5.4"
        )

    def trim(self, id: str, count: int) -> None:
        super().trim(id, count)
        del self._tokens[id][self._lengths[id] :]
        self._computed[id] = min(self._computed[id], self._lengths[id])
        self._remembered[id] = min(self._remembered[id], self._computed[id] // self.pool.page_size)

    def close(self, id: str) -> None:
        self._remember(id)
        super().close(id)
        del self._tokens[id], self._computed[id], self._remembered[id]

    def step(self, chunks: Sequence[Chunk]) -> StepCache[PageRows]:
        """As in `PagedKVCache`. What was computed before this step can be found from now on."""
        for chunk in chunks:
            self._remember(chunk.request.id)
            self._computed[chunk.request.id] = chunk.end
        return super().step(chunks)

    def _remember(self, id: str) -> None:
        """Into the tree with what was computed of a request: what a planned step has yet to compute is left out."""
        whole = self._computed[id] // self.pool.page_size
        if whole > self._remembered[id]:
            self.tables[id] = self.tree.insert(self._tokens[id][: self._computed[id]], self.tables[id])
            self._remembered[id] = whole

    def check_integrity(self, lengths: Mapping[str, int]) -> None:
        super().check_integrity(lengths)
        self.tree.check_integrity()
        assert {id: len(tokens) for id, tokens in self._tokens.items()} == lengths

    def held(self) -> Mapping[int, int]:
        return Counter(super().held()) + Counter(node.page for node in self.tree.root)
