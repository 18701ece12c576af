"""Week 3 Day 5: a prefix cache."""

import zlib
from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from helpers import Inputs, assert_close

from tiny_llm_models.untrained import untrained_config, write_untrained

task_1 = pytest.mark.task("w3d5.1")
task_2 = pytest.mark.task("w3d5.2")
task_3 = pytest.mark.task("w3d5.3")
task_4 = pytest.mark.task("w3d5.4")

MODULUS = 2**61 - 1  # Python ints that differ by this number have the same hash, and so do -1 and -2


def new_tree(impl, page_size=4, num_pages=24):
    return impl.serving.prefix_tree.PrefixTree(impl.serving.page_pool.PagePool(num_pages, page_size))


def nodes_of(tree):
    """Return the last node of each known text, found page by page from the text's beginning."""
    texts, nodes = {tree.root: ()}, {}
    for node in tree.root:
        texts[node] = texts[node.parent] + tuple(node.tokens)
        nodes[texts[node]] = node
    return nodes


def pages_of(tree):
    """Return the last page of each known text."""
    return {text: node.page for text, node in nodes_of(tree).items()}


def by_use(tree):
    """Return all known texts, the least recently used first."""
    last_used = {text: node.last_used for text, node in nodes_of(tree).items()}
    return sorted(last_used, key=last_used.get)


def ones_common(a, b):
    """Return how many tokens two texts have in common at the beginning."""
    different = [i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]
    return different[0] if different else min(len(a), len(b))


# ------------------------------------------------------------------------------- task 1: the known beginning of a text


class Planted:
    """A tree whose nodes were added by hand, and the text of each page."""

    def __init__(self, impl, *texts, page_size=4, num_pages=24):
        self.node = impl.serving.prefix_tree.Node
        self.tree = new_tree(impl, page_size, num_pages)
        self.nodes, self.texts = {(): self.tree.root}, {}
        for text in texts:
            self.plant(text)

    def plant(self, text):
        """Add the whole pages of a text. Each new node has a page that only the tree holds."""
        size = self.tree.pool.page_size
        for end in range(size, len(text) + 1, size):
            before, known = tuple(text[: end - size]), tuple(text[:end])
            if known not in self.nodes:
                (page,) = self.tree.pool.allocate(1)
                self.nodes[known], self.texts[page] = self.node(known[-size:], page, self.nodes[before]), known
                beside = [other for other in self.nodes if len(other) == end and other[:-size] == before]
                self.nodes[before].children = {other[-size:]: self.nodes[other] for other in beside}
            self.tree.touch(self.nodes[known])

    def match(self, text):
        """Return the last tokens of each found page's text, and the number of found positions."""
        pages, length = self.tree.match(text)
        return [self.texts[page] for page in pages], length

    def expected(self, text):
        """Search naively among all known texts, page by page. Of equally good pages, the first is taken."""
        size, found = self.tree.pool.page_size, []
        while (known := tuple(text[: (len(found) + 1) * size])) in self.nodes and len(known) == (len(found) + 1) * size:
            found.append(known)
        whole = len(found) * size
        after = [other for other in self.nodes if len(other) == whole + size and other[:whole] == tuple(text[:whole])]
        counts = [ones_common(other[whole:], text[whole:]) for other in after]
        if max(counts, default=0) == 0:
            return found, whole
        return [*found, after[counts.index(max(counts))]], whole + max(counts)


@task_1
def test_task_1_two_pages(impl):
    planted = Planted(impl, (1, 2, 3, 4, 5, 6, 7, 8))
    got = planted.match((1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    assert got == ([(1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8)], 8), "texts of the pages, and positions that are known"


@task_1
@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_task_1_beginnings_of_all_lengths(impl, page_size):
    """Of the last page, only as many positions count as the text has."""
    text = [*range(50, 50 + 2 * page_size)]
    planted = Planted(impl, text, page_size=page_size)
    for length in range(2 * page_size + 1):
        pages, found = planted.match(text[:length])
        assert found == length, f"positions that are known of the first {length} tokens"
        expected = len(range(0, length, page_size))
        assert len(pages) == expected, f"pages of {length} positions, {page_size} in a page"


@task_1
@pytest.mark.parametrize("text", [(), (7,), (2, 3, 4, 5), (0, 1, 2, 3, 4), (9,) * 12], ids=str)
def test_task_1_nothing_is_known(impl, text):
    for known in ([], [(1, 2, 3, 4, 5, 6, 7, 8)]):
        got = Planted(impl, *known).match(text)
        assert got == ([], 0), "no page, and no position"


@task_1
def test_task_1_what_is_before_counts(impl):
    """Equal tokens after different beginnings are different pages, because keys and values depend on all earlier
    tokens."""
    a, b, c, same = (1, 2, 3, 4), (1, 2, 3, 5), (6, 6, 6, 6), (7, 7, 7, 7)
    planted = Planted(impl, a + same + a, c + same + b)
    expected = {
        a + same: ([a, a + same], 8),
        c + same + a: ([c, c + same, c + same + b], 11),
        a + same + b: ([a, a + same, a + same + a], 11),
        b + same: ([a], 3),
        same + a: ([], 0),
        c + a: ([c], 4),
    }
    for text, found in expected.items():
        assert planted.match(text) == found, f"known of {text}"


@task_1
def test_task_1_a_page_in_part(impl):
    """Of all pages that could come next, the one with the longest common beginning is found, and the search ends
    there."""
    texts = [(1, 2, 9, 9), (1, 2, 3, 9, 1, 1, 1, 1), (1, 9, 3, 4), (8, 2, 3, 4)]
    planted = Planted(impl, *texts)
    for text, page, length in [
        ((1, 2, 3, 4, 1, 1, 1, 1), (1, 2, 3, 9), 3),
        ((1, 2, 3), (1, 2, 3, 9), 3),
        ((8, 3, 2, 9), (8, 2, 3, 4), 1),
        ((1, 9, 9, 9), (1, 9, 3, 4), 2),
        ((8, 9), (8, 2, 3, 4), 1),
    ]:
        assert planted.match(text) == ([page], length), f"known of {text}"
    got = planted.match((1, 2, 3, 9, 1, 1, 2, 1, 1))
    assert got == ([(1, 2, 3, 9), (1, 2, 3, 9, 1, 1, 1, 1)], 6), "a page in part, behind a whole one"


@task_1
def test_task_1_more_in_common_behind_the_first_difference(impl):
    """Only the common beginning counts, not the number of equal tokens."""
    planted = Planted(impl, (1, 9, 3, 4), (1, 2, 9, 9))
    got = planted.match((1, 2, 3, 4))
    assert got == ([(1, 2, 9, 9)], 2), "the longest common beginning"


@task_1
def test_task_1_nothing_changes_hands(impl):
    """A caller that gets a list of pages does not hold them yet. Each call returns a new list."""
    text = (1, 2, 3, 4, 5, 6, 7, 8)
    planted = Planted(impl, text)
    pages, _ = planted.tree.match([*text, 9])
    pages.clear()
    holders = [planted.tree.pool.holders(node.page) for node in planted.tree.root]
    assert holders == [1, 1], "holders of the pages: the tree, and nobody else"
    assert planted.match(text) == ([text[:4], text], 8), "what was found before is found again"
    planted.tree.check_integrity()


@task_1
def test_task_1_what_is_found_is_used(impl):
    """`match` touches the nodes that it finds, even in part, parents first, and no others."""
    a, b, c = (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8), (9, 9, 9, 9)
    planted = Planted(impl, b, c, (7, 7, 7, 7))
    for text, order in [
        ((5, 5), [a, b, c, (7, 7, 7, 7)]),
        ((*a, 0), [b, c, (7, 7, 7, 7), a]),
        ((9, 9), [b, (7, 7, 7, 7), a, c]),
        ((*a, 5, 6, 0), [(7, 7, 7, 7), c, a, b]),
        ((7,) * 9, [c, a, b, (7, 7, 7, 7)]),
        (b, [c, (7, 7, 7, 7), a, b]),
    ]:
        planted.tree.match(text)
        assert by_use(planted.tree) == order, f"texts by their last use, after {text}"


@task_1
def test_task_1_what_was_only_compared_is_not_used(impl):
    """If several children begin like the rest of the text, `match` touches only the one that it returns."""
    a, b, c, d = (1, 2, 9, 9), (1, 2, 3, 9), (1, 8, 8, 8), (5, 5, 5, 5)
    planted = Planted(impl, a, b, c, d)
    planted.tree.match((1, 2, 3, 4))
    assert by_use(planted.tree) == [a, c, d, b], "texts by their last use"


@task_1
@pytest.mark.parametrize(("token", "other"), [(5, 5 + MODULUS), (0, MODULUS), (-1, -2)], ids=["5", "0", "-1"])
def test_task_1_tokens_with_the_same_hash(impl, token, other):
    """Different tokens may have the same hash. Code that compares only hashes would give one request another one's
    text."""
    assert hash(token) == hash(other)
    assert hash((1, 2, 3, token)) == hash((1, 2, 3, other))
    planted = Planted(impl, (1, 2, 3, token, 6, 6, 6, 6))
    got = planted.match((1, 2, 3, other, 6, 6, 6, 6))
    assert got == ([(1, 2, 3, token)], 3), "the fourth token differs"
    got = Planted(impl, (token,) * 4).match((other,) * 4)
    assert got == ([], 0), "all tokens differ"


@task_1
def test_task_1_any_sequence(impl):
    """The tokens may be a list or a tuple, which stays unchanged."""
    text = [1, 2, 3, 4, 5, 6]
    planted = Planted(impl, (1, 2, 3, 4, 5, 6, 7, 8))
    expected = [(1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8)], 6
    assert planted.match(text) == expected, "of a list"
    assert planted.match(tuple(text)) == expected, "of a tuple"
    assert text == [1, 2, 3, 4, 5, 6], "the caller's list was changed"


@task_1
def test_task_1_a_long_text(impl):
    """The text has 1,100 pages, more than Python's limit of nested calls."""
    planted = Planted(impl, page_size=1, num_pages=1100)
    text, node = tuple(range(1100)), planted.tree.root
    for token, page in zip(text, planted.tree.pool.allocate(1100), strict=True):
        child = planted.node((token,), page, node)
        node.children = {(token,): child}
        node = child
    pages, length = planted.tree.match([*text, 7])
    assert (len(pages), length) == (1100, 1100), "pages, and positions"


@task_1
@pytest.mark.parametrize(("page_size", "seed"), [(1, 1), (2, 2), (3, 3), (4, 4)])
def test_task_1_by_chance(impl, page_size, seed):
    """Random texts of few different tokens are compared with the naive search. Of equally good pages, any one is
    right."""
    random = np.random.RandomState(seed)
    planted = Planted(impl, page_size=page_size, num_pages=200)
    for number in range(60):
        text = random.randint(0, 3, random.randint(1, 10)).tolist()
        (expected, length), (got, found) = planted.expected(text), planted.match(text)
        assert found == length, f"positions that are known of {text}"
        assert len(got) == len(expected), f"pages that hold {length} positions of {text}"
        for i, page in enumerate(got):
            ends = min(len(page), length)
            assert page[:ends] == tuple(text[:ends]), f"page {i} of those that are found holds other tokens"
        if number % 3 == 0 and len(planted.texts) < 150:
            planted.plant(text)


# --------------------------------------------------------------------------------------- task 2: remembering pages


class Owner:
    """Holders of pages that insert texts into a tree. "2.0" is the name of the second holder's first page."""

    def __init__(self, impl, page_size=4, num_pages=24):
        self.tree = new_tree(impl, page_size, num_pages)
        self.pool = self.tree.pool
        self.pages, self.names, self.count = {}, {}, 0

    def allocate(self, count):
        """Add a holder with this many pages, and return their names."""
        self.count += 1
        names = [f"{self.count}.{i}" for i in range(count)]
        for name, page in zip(names, self.pool.allocate(count), strict=True):
            self.pages[name], self.names[page] = page, name
        return names

    def insert(self, tokens, count=None):
        """Let a new holder insert a text, with as many pages as it needs or `count`. Return the pages that it should
        use."""
        needed = len(range(0, len(tokens), self.pool.page_size))
        return self.insert_again(tokens, self.allocate(needed if count is None else count))

    def insert_again(self, tokens, names):
        return [self.names[page] for page in self.tree.insert(tokens, [self.pages[name] for name in names])]

    def release(self, names):
        self.pool.release([self.pages[name] for name in names])

    def holders(self, *names):
        return [self.pool.holders(self.pages[name]) for name in names]

    def match(self, tokens):
        pages, length = self.tree.match(tokens)
        return [self.names[page] for page in pages], length

    @property
    def known(self):
        """Return the last page of each known text."""
        return {text: self.names[page] for text, page in pages_of(self.tree).items()}


@task_2
def test_task_2_a_new_text(impl):
    owner = Owner(impl)
    got = owner.insert((1, 2, 3, 4, 5, 6, 7, 8))
    assert got == ["1.0", "1.1"], "of a text that nobody knows, the holder keeps its pages"
    assert owner.match((1, 2, 3, 4, 5, 6, 7, 8, 9)) == (["1.0", "1.1"], 8), "its pages are found"


@task_2
def test_task_2_the_tree_is_one_more_holder(impl):
    """The tree holds each page that it takes, so the page stays when its first holder leaves."""
    owner = Owner(impl)
    got = owner.insert((1, 2, 3, 4, 5, 6, 7, 8))
    assert owner.holders("1.0", "1.1") == [2, 2], "the holder, and the tree"
    owner.release(got)
    assert owner.holders("1.0", "1.1") == [1, 1], "the tree"
    assert owner.pool.num_free == 22, "what the tree holds is not free"
    owner.tree.check_integrity()


@task_2
@pytest.mark.parametrize("page_size", [1, 3, 4])
@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 11, 12, 13])
def test_task_2_whole_pages_only(impl, page_size, length):
    """An incomplete page is not inserted, because its remaining tokens are not known yet."""
    owner = Owner(impl, page_size)
    text = tuple(range(70, 70 + length))
    got = owner.insert(text)
    names = [f"1.{i}" for i in range(len(range(0, length, page_size)))]
    assert got == names, "pages of the holder"
    whole = length // page_size
    expected = {text[: (i + 1) * page_size]: names[i] for i in range(whole)}
    assert owner.known == expected, "each full page, with the text up to its end"
    assert owner.holders(*names) == [2] * whole + [1] * (len(names) - whole), "holders of the pages"
    owner.tree.check_integrity()


@task_2
def test_task_2_more_pages_than_tokens(impl):
    """A request may have pages for future tokens. They stay its own, and are returned with the others."""
    owner = Owner(impl)
    got = owner.insert((1, 2, 3, 4, 5, 6), count=4)
    assert got == ["1.0", "1.1", "1.2", "1.3"], "all pages of the holder, in their order"
    assert owner.holders(*got) == [2, 1, 1, 1], "the tree holds the page that is full"
    got = owner.insert((1, 2, 3, 4, 5, 6), count=4)
    assert got == ["1.0", "2.1", "2.2", "2.3"], "the page that the tree knew, then its own"
    assert owner.holders("1.0", "2.0", "2.1", "2.2", "2.3") == [3, 0, 1, 1, 1]


@task_2
def test_task_2_what_is_known_keeps_its_page(impl):
    """If two requests computed the same text, the second one returns its pages and shares those of the first."""
    owner = Owner(impl)
    text = (1, 2, 3, 4, 5, 6, 7, 8)
    first, second = owner.insert(text), owner.insert(text)
    assert second == first == ["1.0", "1.1"], "the pages that the tree knew"
    assert owner.holders("1.0", "1.1", "2.0", "2.1") == [3, 3, 0, 0], "the first, the second and the tree; nobody"
    owner.release(first)
    owner.release(second)
    assert owner.pool.num_free == 22
    owner.tree.check_integrity()


@task_2
def test_task_2_a_text_that_goes_on(impl):
    """A generating request inserts the same text again and again, with more tokens and the same pages."""
    owner = Owner(impl)
    text, names = tuple(range(20)), owner.allocate(5)
    for length in (3, 4, 7, 8, 8, 9, 19, 20):
        assert owner.insert_again(text[:length], names) == names, f"its own pages, with {length} tokens"
        expected = [2] * (length // 4) + [1] * (5 - length // 4)
        assert owner.holders(*names) == expected, f"holders of the pages, with {length} tokens"
        owner.tree.check_integrity()


@task_2
def test_task_2_known_at_first_then_new(impl):
    """New pages after known ones become children of the known ones."""
    owner = Owner(impl)
    owner.insert((1, 2, 3, 4, 5, 5, 5, 5))
    got = owner.insert((1, 2, 3, 4, 6, 6, 6, 6, 7, 7, 7, 7))
    assert got == ["1.0", "2.1", "2.2"], "the page that the tree knew, then its own"
    assert owner.holders("1.0", "1.1", "2.0", "2.1", "2.2") == [3, 2, 0, 2, 2]
    assert owner.known == {
        (1, 2, 3, 4): "1.0",
        (1, 2, 3, 4, 5, 5, 5, 5): "1.1",
        (1, 2, 3, 4, 6, 6, 6, 6): "2.1",
        (1, 2, 3, 4, 6, 6, 6, 6, 7, 7, 7, 7): "2.2",
    }, "each page with the text up to its end"
    owner.tree.check_integrity()


@task_2
def test_task_2_the_same_page_behind_another_beginning(impl):
    """Equal tokens after another beginning get a node of their own, because their keys and values differ."""
    owner = Owner(impl)
    a, b, same = (1, 2, 3, 4), (1, 2, 3, 5), (7, 7, 7, 7)
    texts = [a + same, b + same, same + same]
    for number, text in enumerate(texts, start=1):
        assert owner.insert(text) == [f"{number}.0", f"{number}.1"], "no page was known"
    for number, text in enumerate(texts, start=1):
        assert owner.match(text) == ([f"{number}.0", f"{number}.1"], 8), f"known of {text}"
    owner.tree.check_integrity()


@task_2
@pytest.mark.parametrize(("token", "other"), [(5, 5 + MODULUS), (0, MODULUS), (-1, -2)], ids=["5", "0", "-1"])
def test_task_2_tokens_with_the_same_hash(impl, token, other):
    """Different tokens may have the same hash, so the holder keeps its own pages."""
    owner = Owner(impl)
    owner.insert((token, 2, 3, 4, 6, 6, 6, 6))
    got = owner.insert((other, 2, 3, 4, 6, 6, 6, 6))
    assert got == ["2.0", "2.1"], "pages with other tokens"
    assert owner.holders("1.0", "1.1", "2.0", "2.1") == [2, 2, 2, 2]
    owner.tree.check_integrity()


@task_2
def test_task_2_a_page_that_a_third_one_holds(impl):
    """A returned page has one holder less, and is not free while another one holds it."""
    owner = Owner(impl)
    owner.insert((1, 2, 3, 4))
    names = owner.allocate(1)
    owner.pool.share([owner.pages["2.0"]])
    assert owner.insert_again((1, 2, 3, 4), names) == ["1.0"]
    assert owner.holders("1.0", "2.0") == [3, 1]


@task_2
def test_task_2_lists_belong_to_the_caller(impl):
    """The tree does not change the caller's lists, and later changes of them do not change what the tree knows."""
    owner = Owner(impl)
    owner.insert([1, 2, 3, 4, 5, 6, 7, 8])
    tokens, pages = [1, 2, 3, 4, 9, 9, 9, 9], [owner.pages[name] for name in owner.allocate(2)]
    got = owner.tree.insert(tokens, pages)
    names = [owner.names[page] for page in pages]
    assert (tokens, names) == ([1, 2, 3, 4, 9, 9, 9, 9], ["2.0", "2.1"]), "the caller's lists were changed"
    tokens[5], pages[:] = 0, []
    got.clear()
    assert owner.known == {
        (1, 2, 3, 4): "1.0",
        (1, 2, 3, 4, 5, 6, 7, 8): "1.1",
        (1, 2, 3, 4, 9, 9, 9, 9): "2.1",
    }, "each page with the text up to its end"
    owner.tree.check_integrity()


@task_2
def test_task_2_each_node_on_the_way_is_used(impl):
    """`insert` touches every node on the way, new or known, parents first."""
    owner = Owner(impl)
    a, b, c = (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8), (9, 9, 9, 9)
    for text, order in [
        (b, [a, b]),
        (c, [a, b, c]),
        ((*b, 1), [c, a, b]),
        ((*c, *c), [a, b, c, c + c]),
        (a, [b, c, c + c, a]),
        ((9, 9), [b, c, c + c, a]),
    ]:
        owner.insert(text)
        assert by_use(owner.tree) == order, f"texts by their last use, after {text}"


@task_2
def test_task_2_a_long_text(impl):
    """The text has 1,100 pages, more than Python's limit of nested calls."""
    owner = Owner(impl, page_size=1, num_pages=1100)
    owner.insert(list(range(1100)))
    assert owner.match([*range(1100), 7])[1] == 1100, "positions that are known"
    owner.tree.check_integrity()


@task_2
@pytest.mark.parametrize(("page_size", "seed"), [(1, 1), (2, 2), (3, 3)])
def test_task_2_by_chance(impl, page_size, seed):
    """Holders insert random texts of few different tokens, and leave. A naive count follows along."""
    random = np.random.RandomState(seed)
    owner = Owner(impl, page_size, num_pages=400)
    known, holders = {}, []  # the page of each text, and the pages of each holder
    for number in range(1, 41):
        text = tuple(random.randint(0, 3, random.randint(1, 9)).tolist())
        expected = [f"{number}.{i}" for i in range(len(range(0, len(text), page_size)))]
        for i in range(len(text) // page_size):
            expected[i] = known.setdefault(text[: (i + 1) * page_size], expected[i])
        got = owner.insert(text)
        assert got == expected, f"pages that the holder of text {number} is to use"
        holders.append(got)
        if random.rand() < 0.4:
            owner.release(holders.pop(random.randint(len(holders))))
        owner.tree.check_integrity()
        held = [name for names in (*holders, known.values()) for name in names]
        counts = {name: held.count(name) for name in sorted(set(held))}
        assert owner.pool.num_free == 400 - len(counts), f"free pages after text {number}"
        if number % 10 == 0:
            got = dict(zip(counts, owner.holders(*counts), strict=True))
            assert got == counts, f"holders of pages after text {number}"
    assert owner.known == known, "each page with the text up to its end"


# ----------------------------------------------------------------------------------- task 3: which pages to forget


class Tree(Owner):
    """A tree whose pages have no other holder, unless a test adds one."""

    def __init__(self, impl, *texts, **sizes):
        super().__init__(impl, **sizes)
        for text in texts:
            self.insert(text)

    def insert(self, tokens, count=None):
        self.release(super().insert(tokens, count))

    def hold(self, text):
        """Return all pages of a text, with one holder more, as if a request used them."""
        pages, _ = self.tree.match(text)
        self.pool.share(pages)
        return pages

    def evict(self, count):
        """Return the forgotten texts, and how many pages became free, both as the tree says."""
        before, free = set(nodes_of(self.tree)), self.pool.num_free
        got = self.tree.evict(count)
        self.tree.check_integrity()
        gone = before - set(nodes_of(self.tree))
        assert got == self.pool.num_free - free, "pages that are free now and were not before, and what was returned"
        assert got == len(gone), "pages that were given back, and nodes that left the tree"
        return gone


@task_3
def test_task_3_the_least_recently_used(impl):
    tree = Tree(impl, (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3))
    assert tree.evict(1) == {(1, 1, 1, 1)}, "the first that was used"
    assert tree.evict(1) == {(2, 2, 2, 2)}, "then the second"


@task_3
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_task_3_leaves_first(impl, count):
    """A text is forgotten from its end, because a page whose beginning is unknown could never be found."""
    text = tuple(range(16))
    tree = Tree(impl, text)
    expected = {text[:end] for end in (16, 12, 8, 4)[:count]}
    assert tree.evict(count) == expected, f"the last {count} pages of the text"
    assert tree.tree.match(text)[1] == 16 - 4 * count, "positions that are known"


@task_3
def test_task_3_a_parent_in_its_turn(impl):
    """A parent that becomes a leaf is ordered by its own last use, so other leaves may go before it or after it."""
    a, b, c, d = (1,) * 4, (1,) * 8, (3,) * 4, (4,) * 4
    tree = Tree(impl, b, c, d)  # used in this order: a, b, c, d
    assert tree.evict(3) == {b, a, c}, "the child, then its parent, which is older than the others"


@task_3
def test_task_3_a_parent_that_was_used_since(impl):
    """A parent that was used recently goes after all nodes that were used before it."""
    a, b, c, d = (1,) * 4, (1,) * 8, (3,) * 4, (4,) * 4
    tree = Tree(impl, b, c, d)
    tree.tree.match(a)  # b, c, d, a
    assert tree.evict(3) == {b, c, d}, "the parent was used since, and the others were not"
    tree = Tree(impl, b, c, d)
    tree.tree.match(a)
    tree.tree.match(d)  # b, c, a, d
    assert tree.evict(3) == {b, c, a}
    assert tree.evict(5) == {d}


@task_3
def test_task_3_several_children(impl):
    """A parent can go only after the last of its children."""
    a, b, c, d = (1,) * 4, (1,) * 8, (1, 1, 1, 1, 2, 2, 2, 2), (3,) * 4
    tree = Tree(impl, b, c, d)
    tree.tree.match(c)  # b, d, a, c
    assert tree.evict(1) == {b}
    assert tree.evict(1) == {d}, "the older parent has a child left"
    assert tree.evict(2) == {a, c}
    tree = Tree(impl, b, c, d)
    tree.tree.match(c)
    assert tree.evict(3) == {b, d, c}, "one child is gone, and the other one is used later than its parent"


@task_3
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_task_3_what_somebody_holds_stays(impl, count):
    """A page with another holder stays, however long ago it was used, and however many pages are wanted."""
    b, c, d, e = (1,) * 8, (1,) * 12, (1, 1, 1, 1, 2, 2, 2, 2), (3,) * 4
    tree = Tree(impl, c, d)
    tree.hold(b)
    tree.insert(e)  # used in this order: c, d, the beginning of b, b, e
    assert tree.evict(count) == {*(c, d, e)[:count]}
    assert tree.tree.num_evictable == max(3 - count, 0)
    assert tree.holders(*tree.match(b)[0]) == [2, 2], "the tree, and who holds them"


@task_3
def test_task_3_what_nobody_holds_any_more(impl):
    """When its last other holder has left, a page can go like every other page."""
    a, b, c = (1,) * 4, (1,) * 8, (3,) * 4
    tree = Tree(impl, b, c)
    pages = tree.hold(b)  # c, a, b
    assert tree.evict(3) == {c}
    tree.pool.release(pages[1:])
    assert tree.evict(3) == {b}, "the parent is held still"
    tree.pool.release(pages[:1])
    assert tree.evict(3) == {a}
    assert tree.pool.num_free == 24
    assert tree.evict(3) == set(), "an empty tree"


@task_3
@pytest.mark.parametrize("count", [0, -1, -20])
def test_task_3_none(impl, count):
    """If there are enough free pages, nothing is forgotten."""
    tree = Tree(impl, (1,) * 8, (2,) * 4)
    assert tree.evict(count) == set(), "nothing is to be given back"


@task_3
@pytest.mark.parametrize("count", [5, 6, 100])
def test_task_3_all(impl, count):
    """The tree can forget all of its pages, but no more. The root is not a page. Afterwards, the tree can be used
    again."""
    text = tuple(range(20))
    for others in (0, 1, 19):  # pages of another holder, which the tree does not know
        tree = Tree(impl, text)
        names = tree.allocate(others)
        assert len(tree.evict(count)) == 5, "all pages of the tree"
        assert tree.pool.num_free == 24 - others
        assert tree.match(text) == ([], 0), "an empty tree knows nothing"
        tree.release(names)
        tree.insert(text[:8])
        assert by_use(tree.tree) == [text[:4], text[:8]]


@task_3
def test_task_3_what_was_looked_for_is_used(impl):
    """`match` touches nodes, even ones that match in part, and so does `insert`."""
    a, b, c, d = (1,) * 4, (2,) * 4, (3,) * 4, (4,) * 4
    tree = Tree(impl, a, b, c, d)
    tree.tree.match(a)
    tree.tree.match((2, 2, 9))
    tree.insert(c)
    assert tree.evict(1) == {d}
    assert tree.evict(2) == {a, b}
    assert tree.evict(1) == {c}


@task_3
def test_task_3_pages_that_somebody_else_has_by_now(impl):
    """A forgotten page no longer belongs to the tree. A request or another text may use it by now."""
    tree = Tree(impl, (1,) * 8, (2,) * 4, num_pages=3)
    assert len(tree.evict(3)) == 3
    names = tree.allocate(2)
    assert tree.evict(3) == set(), "two pages are a request's, and one is free"
    assert tree.holders(*names) == [1, 1]
    tree.insert((3,) * 4)
    assert tree.evict(3) == {(3,) * 4}
    assert tree.holders(*names) == [1, 1]


@task_3
def test_task_3_a_long_text(impl):
    """The text has 1,100 pages, more than Python's limit of nested calls."""
    tree = Tree(impl, page_size=1, num_pages=1100)
    tree.insert(list(range(1100)))
    assert tree.tree.evict(1098) == 1098
    assert by_use(tree.tree) == [(0,), (0, 1)], "the beginning is what stays"


@task_3
@pytest.mark.parametrize(("page_size", "seed"), [(1, 1), (2, 2), (3, 3)])
def test_task_3_by_chance(impl, page_size, seed):
    """Random texts are inserted, matched, held and released. A naive choice names the next page to go."""
    random = np.random.RandomState(seed)
    tree = Tree(impl, page_size=page_size, num_pages=36 // page_size)
    held = []  # held pages of texts
    for number in range(60):
        text = tuple(random.randint(0, 3, random.randint(1, 9)).tolist())
        if tree.pool.num_free > 8 // page_size:
            tree.insert(text)
        if random.rand() < 0.2:
            held.append(tree.hold(text[: len(text) // page_size * page_size]))
        if held and random.rand() < 0.3:
            tree.pool.release(held.pop(random.randint(len(held))))
        if random.rand() < 0.4:
            count = int(random.randint(1, 8))
            expected = next_to_go(tree, count, page_size)
            assert tree.evict(count) == expected, f"texts that are forgotten, after {number + 1} texts"


def next_to_go(tree, count, page_size):
    """Yield, one after the other, the least recently used node that has no child and no other holder."""
    nodes, gone = nodes_of(tree.tree), set()
    unused = [text for text, node in nodes.items() if tree.pool.holders(node.page) == 1]
    order = sorted(unused, key=lambda text: nodes[text].last_used)
    for _ in range(count):
        parents = {text[:-page_size] for text in nodes if text not in gone}
        gone |= set([text for text in order if text not in gone and text not in parents][:1])
    return gone


# ---------------------------------------------------------------------------------------------- task 4: copy on write

NUM_LAYERS, H_KV = 3, 2


def codes(text, start=0):
    """Return keys of the positions from `start` on, T x H_kv x 1 x 1. Each key encodes all tokens up to its own."""
    code, numbers = 0, []
    for token in text:
        code = zlib.crc32(repr(int(token)).encode(), code)
        numbers.append(code % 60_000)
    numbers = np.array(numbers[start:], np.float32)
    return np.stack([numbers, numbers + 0.5], axis=1)[:, :, None, None]


def queries_alone(query, key, value, scale, mask):
    """Return the queries in place of attention, because the test looks at what is stored."""
    return query


class Served:
    """A cache whose keys and values tell which text they belong to, and its requests."""

    def __init__(self, impl, num_pages=16, page_size=4):
        self.serving = impl.serving
        self.pool = impl.serving.page_pool.PagePool(num_pages, page_size)
        self.prefixes = impl.serving.prefix_cache.PrefixCache(self.pool)
        module = impl.serving.paged_cache
        make_layer = partial(module.PagedKVCacheLayer, attention=queries_alone)
        self.cache = module.PagedKVCache(NUM_LAYERS, self.pool, self.prefixes, make_layer)
        self.requests = {}

    @property
    def tree(self):
        return self.prefixes.tree

    def open(self, id, prompt):
        """Open a request. Return how many of its positions are known; None if there is no room for it."""
        module = self.serving.request
        request = module.Request(id, list(prompt), module.SamplingParams(max_tokens=1000))
        if not self.cache.open(request):
            assert (list(request.pages), request.num_computed_tokens) == ([], 0), "it was refused, and has nothing"
            return None
        self.requests[id] = request
        return request.num_computed_tokens

    def say(self, id, *tokens):
        """Add the next tokens of a request."""
        for token in tokens:
            self.requests[id].add(token, (), 1000)

    def compute(self, *ids, count=None, guesses=(), commit=True):
        """Compute a step with the pending tokens of these requests (at most `count` each), and guesses after them.
        commit: False makes the step fail afterwards."""
        chunks, rows = [], []
        for id in ids:
            request, start = self.requests[id], self.requests[id].num_computed_tokens
            known = list(request.tokens)
            tokens = [*known[start:][:count], *guesses]
            assert self.cache.reserve(request, len(tokens)), f"there is room for {len(tokens)} more tokens of {id!r}"
            for page in request.pages[start // self.pool.page_size :]:
                assert self.pool.holders(page) == 1, "a page that somebody else holds is about to be written"
            chunks.append(self.serving.batch.Chunk(request, tokens, start, 1, request.pages))
            rows.append(codes([*known[:start], *tokens], start))
        step, rows = self.cache.step(chunks), np.concatenate(rows)
        for number, layer in enumerate(step.layers):
            keys = mx.array(rows + number / 4)
            layer.attend(keys, keys, -keys)
        for id, chunk in zip(ids, chunks, strict=True):
            if commit:
                self.cache.commit(self.requests[id], chunk.end)

    def begin(self, id, prompt):
        """Open a request and compute all that is unknown. Return what `open` found."""
        found = self.open(id, prompt)
        self.compute(id)
        return found

    def generate(self, id, *tokens):
        """Compute one step for each of these tokens."""
        for token in tokens:
            self.say(id, token)
            self.compute(id)

    def close(self, id):
        self.cache.close(self.requests.pop(id))

    def remember(self, *texts):
        """Let requests with these texts run and leave."""
        for text in texts:
            self.begin("gone", text)
            self.close("gone")

    def check(self):
        """Check the counts of pages and holders, and the stored keys and values."""
        self.check_counts()
        self.check_stored()

    def check_counts(self):
        self.cache.check_integrity(list(self.requests.values()))

    def check_stored(self):
        """Check that each request, and each text in the tree, finds the keys and values of its own tokens."""
        size, pages, places, expected = self.pool.page_size, [], [], []
        for request in self.requests.values():
            length, table = request.num_computed_tokens, list(request.pages)
            pages += [table[position // size] for position in range(length)]
            places += [position % size for position in range(length)]
            expected.append(codes(request.tokens[:length]))
        for text, page in sorted(pages_of(self.tree).items()):
            pages += [page] * size
            places += range(size)
            expected.append(codes(text, len(text) - size))
        if pages:
            keys = np.concatenate(expected)[:, :, 0]  # T x H_kv x 1
            keys = np.concatenate([keys + number / 4 for number in range(NUM_LAYERS)])
            pages, places = mx.array(pages), mx.array(places)
            for name, sign in (("keys", 1), ("values", -1)):
                got = [getattr(layer, name)[pages, :, places] for layer in self.cache.layers]
                assert_close(mx.concatenate(got), sign * keys, tolerance=0)

    def same(self, a, b):
        """Return how many pages two requests share at the beginning."""
        return ones_common(list(self.requests[a].pages), list(self.requests[b].pages))

    def known(self):
        """Return all known texts."""
        return sorted(pages_of(self.tree))

    def holders(self, id):
        """Return the number of holders of each page of a request."""
        return [self.pool.holders(page) for page in self.requests[id].pages]


SYSTEM = [100, 101, 102, 103, 104, 105, 106, 107]  # many prompts begin with these two pages


@task_4
def test_task_4_a_shared_beginning(impl):
    served = Served(impl)
    served.begin("a", [*SYSTEM, 1, 2])
    assert served.open("b", [*SYSTEM, 3, 4, 5]) == 8, "positions that are known"
    assert served.same("a", "b") == 2, "pages of both"


@task_4
def test_task_4_who_holds_what(impl):
    """Each request adds a holder to its pages, and removes it when it leaves. The tree is the last holder."""
    served = Served(impl)
    for count, id in enumerate("abc", start=1):
        served.begin(id, [*SYSTEM, count, count])
        served.generate(id, 9)
        assert served.holders(id) == [count + 1, count + 1, 1], f"holders of the pages of request {count}"
        served.check()
    for count, id in enumerate("abc", start=1):
        served.close(id)
        shared, _ = served.tree.match(SYSTEM)
        assert [served.pool.holders(page) for page in shared] == [4 - count] * 2, f"after {count} of them left"
        served.check()
    assert served.pool.num_free == 14, "what the tree knows is not free"
    assert served.open("d", list(range(50, 114))) == 0, "but as good as free: there is room for 16 pages"
    served.check()


@task_4
@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_task_4_prompts_of_all_lengths(impl, page_size):
    """A prompt finds everything that is known, except for its last token, because the model has to run on at least
    one."""
    text = list(range(70, 118))
    served = Served(impl, num_pages=300 // page_size, page_size=page_size)
    served.remember(text)
    for length in (1, 3, 4, 5, 8, 9, 16, 17, 47, 48):
        for count in (0, 1, 17):
            prompt = text[:length] + [1000 * length + 100 * count + i for i in range(count)]
            expected = min(length, len(prompt) - 1)
            assert served.open("a", prompt) == expected, f"{length} tokens known, {count} not: positions"
            pages = len(served.requests["a"].pages)
            assert pages == len(range(0, len(prompt), page_size)), "pages for all tokens"
            served.compute("a")
            if count == 1 and length in (5, 17, 48):
                served.check()
            served.close("a")


@task_4
def test_task_4_nothing_is_known(impl):
    """Without a known beginning, the cache behaves like any paged cache."""
    served = Served(impl)
    for id, prompt in (("a", [1]), ("b", [2, 3, 4, 5, 6]), ("c", [9, *SYSTEM])):
        assert served.begin(id, prompt) == 0, "no position is known"
        served.check()
    assert [len(served.requests[id].pages) for id in "abc"] == [1, 2, 3]


@task_4
def test_task_4_a_page_in_part_is_copied(impl):
    """A page that matches in part is copied in all layers before anything is written after the match. The original
    stays unchanged."""
    served = Served(impl)
    served.remember([*SYSTEM, 1, 2, 3, 4, 5])
    for id in "ab":
        assert served.open(id, [*SYSTEM, 1, 2, 9, ord(id)]) == 10
        served.check()
    assert served.same("a", "b") == 2, "two whole pages are shared; each has a copy of the third"
    assert (served.holders("a"), served.holders("b")) == ([3, 3, 1], [3, 3, 1])
    third = pages_of(served.tree)[(*SYSTEM, 1, 2, 3, 4)]
    assert served.pool.holders(third) == 1, "the page that was copied belongs to the tree alone"
    for id in "ba":
        served.compute(id)
        served.check()


@task_4
def test_task_4_a_copy_that_is_filled(impl):
    """When a copied page is full and all of it is computed, the tree knows it like any other page."""
    served = Served(impl)
    served.remember([*SYSTEM, 1, 2, 3, 4, 5])
    served.begin("a", [*SYSTEM, 1, 2, 9])
    assert (*SYSTEM, 1, 2, 9, 9) not in served.known()
    served.generate("a", 9)
    assert (*SYSTEM, 1, 2, 9, 9) in served.known(), "the page that was copied and filled"
    served.generate("a", 7, 7, 7, 7)
    served.close("a")
    assert served.open("b", [*SYSTEM, 1, 2, 9, 9, 7, 7, 7, 7, 0]) == 16
    served.check()


@task_4
def test_task_4_no_copy_without_need(impl):
    """A whole page is not copied, because the next position begins a new page."""
    served = Served(impl)
    copied = []
    for layer in served.cache.layers:
        layer.copy_page = lambda source, target: copied.append((source, target))
    served.begin("a", [*SYSTEM, 1])
    for id, prompt, known in (("b", [*SYSTEM, 5], 8), ("c", [*SYSTEM[:4], 1], 4), ("d", [50, 51], 0)):
        assert served.open(id, prompt) == known
    assert copied == []
    assert served.same("a", "b") == 2
    assert served.holders("b") == [4, 3, 1]


@task_4
def test_task_4_answers_are_known_too(impl):
    """The next turn of a chat begins with the last prompt and its answer, and finds both."""
    served = Served(impl)
    served.begin("a", [1, 2, 3])
    served.generate("a", *range(40, 50))
    served.close("a")
    assert served.open("b", [1, 2, 3, *range(40, 50), 60, 61]) == 12, "13 tokens were computed: three whole pages"
    served.check()


@task_4
def test_task_4_a_request_that_comes_back(impl):
    """A preempted request finds its prompt and output again: 13 tokens were computed, and they fill three pages."""
    served = Served(impl)
    served.begin("a", [1, 2, 3])
    served.generate("a", *range(40, 50))
    request = served.requests["a"]
    served.cache.close(request)
    assert served.cache.open(request)
    assert request.num_computed_tokens == 12, "its own tokens that are known"
    served.check()


@task_4
def test_task_4_found_while_it_runs(impl):
    """Computed pages can be found as soon as a step is committed. A page that two requests computed is kept once."""
    served = Served(impl)
    for id in "ab":
        assert served.open(id, [*SYSTEM, 1]) == 0, "nothing is committed"
    free = served.pool.num_free
    served.compute("a", "b")
    assert served.same("a", "b") == 2, "the same tokens, the same pages"
    assert served.pool.num_free == free + 2, "two pages were given back"
    assert served.open("c", [*SYSTEM, 1]) == 8
    served.check()
    served.generate("a", 5)
    served.generate("b", 6)
    served.check()


@task_4
@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_task_4_a_prompt_in_parts(impl, count):
    """After each part, exactly the whole pages of computed tokens are known."""
    served = Served(impl)
    prompt = [*SYSTEM, 1, 2, 3]
    served.open("a", prompt)
    for computed in (*range(count, len(prompt), count), len(prompt)):
        served.compute("a", count=count)
        expected = sorted(tuple(prompt[:end]) for end in range(4, computed + 1, 4))
        assert served.known() == expected, f"texts that are known when {computed} tokens are computed"
        served.check()


@task_4
def test_task_4_what_was_not_committed_is_not_known(impl):
    """A request was preempted before its step, or the step failed. Its tokens must not be found, because they may not
    be stored."""
    served = Served(impl)
    served.open("a", [*SYSTEM, 1])
    served.close("a")
    assert served.open("b", [*SYSTEM, 1]) == 0, "nothing of it was computed"
    served.compute("b", count=6)
    served.close("b")
    assert served.open("c", [*SYSTEM, 1]) == 4, "six tokens were computed: one whole page"
    served.compute("c", commit=False)
    assert served.open("d", [*SYSTEM, 1]) == 4, "as before"
    served.close("c")
    assert served.open("e", [*SYSTEM, 1]) == 4, "as before"
    served.check()


@task_4
def test_task_4_guesses_that_were_rejected(impl):
    """Rejected guesses were in pages, and may have filled them, but the tree knows only the request's tokens."""
    served = Served(impl)
    served.begin("a", [*SYSTEM, 1])
    for guesses, accepted in (([2, 3, 4, 5, 6], 1), ([7, 7, 7], 0), ([8, 9, 8, 9], 4), ([1, 1, 1, 1, 1, 1], 2)):
        request = served.requests["a"]
        served.say("a", 50)
        served.compute("a", guesses=guesses, commit=False)
        served.say("a", *guesses[:accepted], 60)
        served.cache.commit(request, len(request.tokens) - 1)
        assert len(request.pages) == len(range(0, len(request.tokens), 4)), "pages beyond all tokens are given back"
        served.check()
    known = [text for text in served.known() if len(text) > 8]
    assert all(text == tuple(served.requests["a"].tokens[: len(text)]) for text in known)
    assert len(known) == 2 + (len(served.requests["a"].tokens) - 1) // 4 - 4


@task_4
def test_task_4_what_the_tree_gives_up(impl):
    """The tree evicts exactly the missing pages, the least recently used first."""
    served = Served(impl, num_pages=6)
    served.remember(*([i] * 4 + [9] for i in range(4)))
    served.open("a", [50] * 8)
    for count, known in ((0, [0, 1, 2, 3]), (4, [1, 2, 3]), (3, [2, 3]), (1, [2, 3]), (4, [3])):
        served.say("a", *[50] * count)
        served.compute("a")
        assert [text[0] for text in served.known() if text[0] < 50] == known, "first tokens of the texts that are left"
        served.check()
    assert not served.cache.reserve(served.requests["a"], 9), "the tree has one page left"
    served.generate("a", 1, 2, 3, 4)
    served.check()


@task_4
def test_task_4_no_room(impl):
    """Without room, the call returns False, the request gets nothing, and all others keep what they have."""
    served = Served(impl, num_pages=5)
    served.remember([*SYSTEM, 1])
    served.begin("b", [1, 2, 3, 4, 5])
    before = list(served.requests["b"].pages)
    for prompt in ([*SYSTEM[:6], *range(20, 27)], list(range(20, 33)), [*SYSTEM, *range(20, 25)]):
        assert served.open("a", prompt) is None, f"three pages are not held, and {prompt} needs four"
        assert list(served.requests["b"].pages) == before
        served.check()
    assert served.open("a", list(range(20, 32))) == 0
    served.compute("a")
    served.check()


@task_4
def test_task_4_no_room_at_first(impl):
    """A request that found no room asks again later, and finds what the tree knows by then."""
    served = Served(impl, num_pages=5)
    served.remember([*SYSTEM, 1])
    served.begin("b", [1] * 9)
    module = served.serving.request
    request = module.Request("a", [*SYSTEM, *range(20, 25)], module.SamplingParams(max_tokens=9))
    assert not served.cache.open(request), "two pages are known, and no page is free"
    served.tree.evict(2)
    served.close("b")
    assert served.cache.open(request), "by now there are pages"
    assert request.num_computed_tokens == 0, "the tree has given up the pages that it found at first"
    served.requests["a"] = request
    served.compute("a")
    served.check()


@task_4
def test_task_4_what_it_found_is_not_given_up(impl):
    """Making room for a request never evicts the pages that it shares, even if they are the least recently used."""
    served = Served(impl, num_pages=8)
    served.remember([*SYSTEM, 1], *([i] * 4 + [9] for i in range(4)))
    served.remember(*([i] * 4 + [9] for i in range(4)))  # these were used later
    assert served.pool.num_free == 2
    assert served.open("a", [*SYSTEM, *range(20, 40)]) == 8
    assert [text[0] for text in served.known()] == [3, 100, 100], "three of the others had to go"
    served.compute("a")
    served.check()


@task_4
@pytest.mark.parametrize("length", [13, 14, 15, 16])
def test_task_4_the_whole_pool_for_one(impl, length):
    """The last page matches in part, and there is no room for a copy of it, so the page itself is evicted."""
    served = Served(impl, num_pages=4)
    text = list(range(70, 86))
    served.remember([*text, 0][:16])
    served.remember(text)
    assert served.open("a", text[:length]) == length - 1
    served.compute("a")
    served.check()


@task_4
def test_task_4_a_source_that_was_given_up(impl):
    """The copied page may be evicted to make room for the same request. Its contents are still copied."""
    for others in range(4):
        served = Served(impl, num_pages=8)
        served.remember([*SYSTEM, 1, 2, 3, 4])
        served.remember(*([i] * 4 for i in range(others)))
        served.tree.match([*SYSTEM, 1, 2, 3, 4]) if others % 2 else None
        assert served.open("a", [*SYSTEM, 1, 2, *range(20, 42)]) == 10, "it needs the whole pool"
        served.check_stored()
        served.compute("a")
        served.check()


@task_4
def test_task_4_lists_belong_to_the_caller(impl):
    """A request's list may change after it has left. The tree still knows the computed tokens."""
    served = Served(impl)
    served.begin("a", [*SYSTEM, 1, 2, 3, 4, 5])
    request = served.requests["a"]
    served.close("a")
    request.tokens[:8] = [0] * 8
    expected = [tuple(SYSTEM[:4]), tuple(SYSTEM), (*SYSTEM, 1, 2, 3, 4)]
    assert served.known() == expected, "texts that are known"
    served.check()


@task_4
@pytest.mark.parametrize(("token", "other"), [(5, 5 + MODULUS), (-1, -2)], ids=["5", "-1"])
def test_task_4_nobody_gets_another_text(impl, token, other):
    """No request gets another text's keys, neither with tokens of the same hash nor with an equal page after another
    beginning."""
    served = Served(impl)
    served.remember([token, 2, 3, 4, 6, 6, 6, 6, 9])
    for id, prompt in (("a", [other, 2, 3, 4, 6, 6, 6, 6, 9]), ("b", [7, 7, 7, 7, 6, 6, 6, 6, 9])):
        assert served.open(id, prompt) == 0, "another beginning: nothing of it is known"
    served.compute("a", "b")
    served.check()


@task_4
@pytest.mark.parametrize(("page_size", "seed"), [(1, 1), (3, 2), (4, 3)])
def test_task_4_by_chance(impl, page_size, seed):
    """Random requests arrive, generate, have guesses rejected, fail and leave, with few pages and much in common."""
    random = np.random.RandomState(seed)
    served = Served(impl, num_pages=36 // page_size, page_size=page_size)
    for number in range(60):
        id = "abcd"[random.randint(4)]
        if id not in served.requests:
            prompt = random.randint(0, 2, random.randint(1, 12)).tolist()
            best = max((ones_common(text, prompt[:-1]) for text in served.known()), default=0)
            found = served.open(id, prompt)
            if found is not None:
                assert found == best, f"positions that were known, in turn {number}"
                served.compute(id, count=int(random.randint(1, 13)))
        elif random.rand() < 0.75:
            request = served.requests[id]
            guesses = random.randint(0, 2, random.randint(1, 6)).tolist()
            if not served.cache.reserve(request, len(request.tokens) - request.num_computed_tokens + len(guesses)):
                continue
            served.compute(id, guesses=guesses, commit=False)
            served.say(id, *guesses[: random.randint(1, len(guesses) + 1)])
            if random.rand() < 0.8:  # otherwise the step fails
                served.cache.commit(request, len(request.tokens) - 1)
        else:
            served.close(id)
        served.check_counts()
        if number % 4 == 3:
            served.check()


def new_model(impl, folder):
    config = untrained_config("qwen3", num_hidden_layers=2)
    shapes = impl.given.weights.expected_shapes(impl.given.config.ModelConfig.from_hf(config))
    write_untrained(folder, config, shapes, seed=3)
    return impl.models.load_model(folder)


SAMPLING = [
    {"max_tokens": 9},
    {"max_tokens": 12, "temperature": 1.0, "seed": 5},
    {"max_tokens": 15, "repetition_penalty": 1.3},
    {"max_tokens": 1},
    {"max_tokens": 6, "temperature": 1.2, "top_p": 0.9, "seed": 7},
]


def requests_of(impl, system, lengths):
    """Return requests whose prompts begin alike, each with its own way to choose tokens."""
    serving = impl.serving.request
    rests = [np.array(Inputs(40 + i % 5).tokens(length, vocab_size=256)).tolist() for i, length in enumerate(lengths)]
    return [
        serving.Request(f"r{i}", system + rest, serving.SamplingParams(**SAMPLING[i % len(SAMPLING)]))
        for i, rest in enumerate(rests)
    ]


def alone(impl, model, request):
    """Return what a request gets without other requests, by week 2's loop."""
    params = request.params
    sampler = impl.serving.distributions.sampler_of(params)
    eos_token_ids = model.config.eos_token_ids
    return list(impl.generate.generate(model, list(request.prompt), sampler, params.max_tokens, eos_token_ids))


def serving(impl, num_layers, pool, token_budget):
    """Return a cache that finds prefixes, and a scheduler that preempts."""
    cache = impl.serving.paged_cache.PagedKVCache(num_layers, pool, impl.serving.prefix_cache.PrefixCache(pool))
    module = impl.serving.scheduler
    return cache, module.Scheduler(cache, 4, module.TokenBudget(token_budget), module.PreemptNewest())


class Watch:
    """An observer that counts computed tokens and notes preempted requests."""

    def __init__(self):
        self.num_tokens, self.preempted = 0, []

    def on_step(self, engine, batch, touched):
        self.num_tokens += batch.num_tokens
        self.preempted += list(batch.preempted)

    def on_abort(self, engine, request):
        """Do nothing."""


@task_4
@pytest.mark.parametrize(("num_pages", "page_size"), [(9, 4), (34, 1)])
def test_task_4_token_for_token(impl, tmp_path, num_pages, page_size):
    """With few pages and a shared beginning, some requests are preempted and one is aborted. Each gets what it gets
    alone."""
    model = new_model(impl, tmp_path)
    pool = impl.serving.page_pool.PagePool(num_pages, page_size)
    watch, (cache, scheduler) = Watch(), serving(impl, len(model.layers), pool, token_budget=8)
    engine = impl.serving.engine.Engine(model, scheduler, (watch,), is_checked=True)
    requests = requests_of(impl, SYSTEM, [5, 1, 11, 2, 7, 5, 1])
    for request in requests:
        engine.add(request)
    for number in range(300):
        if number == 9:
            engine.abort("r2")
        if not engine.has_work:
            break
        engine.step()
    for request in requests:
        got, expected = list(request.output), alone(impl, model, request)
        if request.id == "r2":
            assert request.finish_reason == "abort"
            expected = expected[: len(got)]
        assert got == expected, f"output of {request.id!r}, and what it gets alone"
    assert watch.preempted, "this pool is too small for all of them"
    cache.check_integrity([])


@task_4
def test_task_4_computed_once(impl, tmp_path):
    """With room for all, the model runs only on the new tokens of a prompt, and at least on its last one."""
    model = new_model(impl, tmp_path)
    pool = impl.serving.page_pool.PagePool(40, 4)
    watch, (_, scheduler) = Watch(), serving(impl, len(model.layers), pool, token_budget=64)
    engine = impl.serving.engine.Engine(model, scheduler, (watch,), is_checked=True)
    counts = []
    for i, rest in enumerate([[1, 2], [3, 4], [3, 4], [3, 4, 5, 6, 7]]):
        params = impl.serving.request.SamplingParams(max_tokens=3, ignore_eos=True)
        engine.add(impl.serving.request.Request(f"r{i}", SYSTEM * 2 + rest, params))
        before = watch.num_tokens
        for _ in range(3):
            engine.step()
        counts.append(watch.num_tokens - before)
    assert not engine.has_work
    assert counts == [18 + 2, 2 + 2, 1 + 2, 3 + 2], "tokens that were computed: new ones of prompts, and generated ones"
