"""A tree of pages, which finds a page by the page's tokens and all earlier tokens of the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from .page_pool import PagePool

__all__ = ["Node", "PrefixTree", "common"]


class Node:
    """A page full of tokens, which follow the ancestors' tokens. The root has no tokens and no page.

    tokens: exactly the tokens whose keys and values are in the page. children: the nodes that follow this one, keyed by
    their tokens. last_used: the time of the node's last use, as a number that grows with every use of a node.
    """

    def __init__(self, tokens: tuple[int, ...], page: int, parent: Node | None):
        self.tokens, self.page, self.parent = tokens, page, parent
        self.children: dict[tuple[int, ...], Node] = {}
        self.last_used = 0

    def __iter__(self) -> Iterator[Node]:
        """Yield all descendants of this node, parents first."""
        found = list(self.children.values())
        while found:
            node = found.pop()
            yield node
            found += node.children.values()


class PrefixTree:
    """A tree that finds the pages of a text's beginning. The tree itself is a holder of each of its pages.

    A request that holds the page of a node also holds the pages of all the node's ancestors. So if only the tree holds
    a page, no request holds the page of a descendant.

    Source: Zheng et al. 2024, "SGLang: Efficient Execution of Structured Language Model Programs", section 3,
    arXiv:2312.07104.
    """

    def __init__(self, pool: PagePool):
        self.pool = pool
        self.root = Node((), -1, None)
        self._time = 0
        self._by_use: dict[int, Node] = {}  # keyed by page, the least recently used first

    def touch(self, node: Node) -> None:
        """Record that a node is used now, which makes it the most recently used node."""
        self._time += 1
        node.last_used = self._time
        self._by_use.pop(node.page, None)
        self._by_use[node.page] = node

    def match(self, tokens: Sequence[int]) -> tuple[list[int], int]:
        """Return the pages of the longest known beginning of a text, in order, and how many of the text's positions
        these pages hold.

        First come whole pages, as long as a child has exactly the next tokens of the text. Then comes at most one page
        that matches in part: the page of the child that has the longest beginning in common with the rest of the text,
        one token or more. Of this page, count only the positions in common.
        Touch each node that is found, parents first. No page gets a new holder.

        Task: w3d5.1
        """
        pages: list[int] = []
        node, length, size = self.root, 0, self.pool.page_size
        while child := node.children.get(tuple(tokens[length : length + size])):
            node = child
            self.touch(node)
            pages.append(node.page)
            length += size
        rest = tokens[length:]
        begins = (child for child in node.children.values() if child.tokens[:1] == tuple(rest[:1]))
        if best := max(begins, key=lambda child: common(child.tokens, rest), default=None):
            self.touch(best)
            pages.append(best.page)
            length += common(best.tokens, rest)
        return pages, length

    def insert(self, tokens: Sequence[int], pages: Sequence[int]) -> list[int]:
        """Remember the whole pages of a text. Return the pages that the holder of `pages` has to use from now on, as
        many pages as before.

        tokens: the text from its beginning; the tokens after the last whole page are ignored. pages: the holder's
        pages, in order, at least one for each whole page; the pages after the last whole page are returned as they are.
        A page whose tokens are new to the tree becomes a node, and the tree becomes one more holder of the page. If the
        tree has another page for these tokens, the holder shares the tree's page, and releases its own page. Touch each
        node on the way, parents first.

        Task: w3d5.2
        """
        node, size, used = self.root, self.pool.page_size, list(pages)
        for i in range(len(tokens) // size):
            key = tuple(tokens[i * size : (i + 1) * size])
            if key not in node.children:
                node.children[key] = Node(key, used[i], node)
                self.pool.share([used[i]])
            node = node.children[key]
            self.touch(node)
            if node.page != used[i]:
                self.pool.share([node.page])
                self.pool.release([used[i]])
                used[i] = node.page
        return used

    @property
    def num_evictable(self) -> int:
        """Count the pages that only the tree holds."""
        return sum(self.pool.holders(node.page) == 1 for node in self.root)

    def evict(self, count: int) -> int:
        """Give back to the pool `count` pages that only the tree holds, or all such pages if there are fewer: the least
        recently used first. Give back no page if `count` is 0 or less.

        Remove a node only if it is a leaf, so that no node loses its ancestors; a parent is a leaf once its last child
        is removed. Return how many pages became free.

        Task: w3d5.3
        """
        if count <= 0:
            return 0
        evicted = 0
        for node in list(self._by_use.values()):
            while evicted < count and self._is_evictable(node):
                parent = self._forget(node)
                evicted += 1
                if parent.last_used > node.last_used:
                    break  # it comes later in the list
                node = parent
            if evicted >= count:
                break
        return evicted

    def _forget(self, node: Node) -> Node:
        """Take a leaf out of the tree, and give back its page. Return the leaf's parent."""
        assert node.parent is not None
        del node.parent.children[node.tokens], self._by_use[node.page]
        self.pool.release([node.page])
        return node.parent

    def _is_evictable(self, node: Node) -> bool:
        """Tell whether a node is a leaf of the tree, and the tree is the only holder of its page."""
        is_known = node.parent is not None and node.parent.children.get(node.tokens) is node
        return is_known and not node.children and self.pool.holders(node.page) == 1

    def check_integrity(self) -> None:
        """Raise AssertionError unless each node's parent lists the node under the node's tokens, and each node has a
        page that the pool counts as held and that no other node has."""
        nodes = list(self.root)
        pages = [node.page for node in nodes]
        assert len(set(pages)) == len(pages), f"a page is in two nodes: {sorted(pages)}"
        for node in nodes:
            assert node.parent is not None
            assert node.parent.children.get(node.tokens) is node, "a node is missing from its parent's children"
            assert len(node.tokens) == self.pool.page_size
            assert self.pool.holders(node.page) >= 1, f"page {node.page} is in the tree, but free"
            if node.parent is not self.root:
                alone = self.pool.holders(node.parent.page) == 1
                assert not alone or self.pool.holders(node.page) == 1, "a request holds a page, but not the parent page"


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the two texts' common beginning, in tokens."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
