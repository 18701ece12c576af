"""Pages: pieces of memory, all of the same size, which a pool allocates, shares and frees."""

from collections import Counter
from collections.abc import Mapping, Sequence

__all__ = ["OutOfPagesError", "PagePool"]


class OutOfPagesError(RuntimeError):
    """The error raised when a pool has fewer free pages than are needed."""


class PagePool:
    """A pool of pages, which counts the holders of each page, and knows nothing about a page's content.

    num_pages: the number of pages, which are numbered 0 to num_pages - 1. page_size: the number of positions in a page.
    """

    def __init__(self, num_pages: int, page_size: int = 16):
        _check_sizes(num_pages, page_size)
        self.num_pages, self.page_size = num_pages, page_size
        self._free = list(reversed(range(num_pages)))
        self._holders = [0] * num_pages

    @property
    def num_free(self) -> int:
        """Return the number of free pages."""
        return len(self._free)

    def holders(self, page: int) -> int:
        """Return how many holders a page has; 0 means that the page is free."""
        return self._holders[page]

    def pages_for(self, length: int) -> int:
        """Return how many pages `length` positions need."""
        return -(-length // self.page_size)

    def allocate(self, count: int) -> list[int]:
        """Take `count` free pages, or none if fewer are free. Return the pages, each of which then has one holder.

        Raises:
            OutOfPagesError: fewer than `count` pages are free; then the pool has not changed.

        Task: w3d3.1
        """
        raise NotImplementedError(
            "Week 3 Day 3 Task 1: PagePool.allocate is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.1"
        )

    def share(self, pages: Sequence[int]) -> None:
        """Give each of these pages one more holder. No page may be listed twice.

        Raises:
            ValueError: a page is free, so no holder can share it. `_check_held` (given) raises this error; nothing has
                changed then.

        Task: w3d3.1
        """
        _check_held(pages, self._holders)
        raise NotImplementedError(
            "Week 3 Day 3 Task 1: PagePool.share is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.1"
        )

    def release(self, pages: Sequence[int]) -> None:
        """Take one holder away from each of these pages. A page without a holder is free again.

        Raises:
            ValueError: a page is free, or would lose more holders than it has. `_check_held` (given) raises this error;
                nothing has changed then.

        Task: w3d3.1
        """
        _check_held(pages, self._holders)
        raise NotImplementedError(
            "Week 3 Day 3 Task 1: PagePool.release is yours to write. "
            "Chapter: A paged KV cache. "
            "Test: ./course test w3d3.1"
        )

    def check_integrity(self, held: Mapping[int, int]) -> None:
        """Raise AssertionError unless exactly the pages in `held` have holders, held[page] each, and the list of free
        pages contains each of the other pages once."""
        found = {page: count for page, count in enumerate(self._holders) if count}
        assert found == held, f"holders of pages: counted {found}, there are {dict(held)}"
        free = sorted(self._free)
        expected = [page for page in range(self.num_pages) if page not in found]
        assert free == expected, f"free pages: listed {free}, expected {expected}"


def _check_sizes(num_pages: int, page_size: int) -> None:
    if num_pages < 1 or page_size < 1:
        raise ValueError(f"expected one page or more, of one position or more, got {num_pages} of {page_size}")


def _check_held(pages: Sequence[int], holders: Sequence[int]) -> None:
    for page, count in Counter(pages).items():
        held = holders[page] if 0 <= page < len(holders) else 0
        if count > held:
            raise ValueError(f"page {page}: expected one that is held {count} times or more, got {held}")
