"""Week 3 Day 3: a paged KV cache."""

from collections import Counter

import mlx.core as mx
import numpy as np
import oracles
import pytest
from helpers import Inputs, array64, assert_close, over_dtypes

from tiny_llm_models.untrained import untrained_config, write_untrained

task_1 = pytest.mark.task("w3d3.1")
task_2 = pytest.mark.task("w3d3.2")
task_3 = pytest.mark.task("w3d3.3")
task_4 = pytest.mark.task("w3d3.4")


def refused(call):
    """Fail unless a call raises a ValueError or an AssertionError."""
    with pytest.raises((ValueError, AssertionError)):
        call()


def out_of_pages(call):
    """Fail unless a call raises an OutOfPagesError, which is what callers of `allocate` expect."""
    try:
        call()
    except NotImplementedError:
        raise
    except Exception as error:
        name = f"{type(error).__name__}: {error}"
        assert "OutOfPagesError" in name, f"expected an OutOfPagesError, got {name}"
    else:
        pytest.fail("expected an OutOfPagesError, got no error at all", pytrace=False)


# ------------------------------------------------------------------------------------------ task 1: a pool of pages


def new_pool(impl, num_pages, page_size=4):
    return impl.serving.page_pool.PagePool(num_pages, page_size)


def counted(pool):
    """Return how many pages are free, and how many holders each page has."""
    return state(pool.num_free, [pool.holders(page) for page in range(pool.num_pages)])


def state(num_free, holders):
    """Return the result of `counted` for such a pool, with names that a failure shows."""
    return {"num_free": num_free} | {f"holders of page {page}": count for page, count in enumerate(holders)}


@task_1
def test_task_1_take_and_give_back(impl):
    pool = new_pool(impl, 8)
    pages = pool.allocate(3)
    assert {"handed out": len(pages), "free": pool.num_free} == {"handed out": 3, "free": 5}
    pool.release(pages)
    assert pool.num_free == 8, "all pages are free again"


@task_1
def test_task_1_each_page_has_one_holder(impl):
    """No page is given out twice."""
    pool = new_pool(impl, 8)
    pages = []
    for count in (2, 1, 4):
        pages += pool.allocate(count)
        assert len(set(pages)) == len(pages), "a page was handed out that is held already"
        assert set(pages) <= set(range(8)), "pages are named 0 to num_pages - 1"
        assert counted(pool) == state(8 - len(pages), [pages.count(page) for page in range(8)])
        pool.check_integrity(Counter(pages))


@task_1
def test_task_1_all_of_them_or_none(impl):
    """If there are fewer free pages, `allocate` raises an OutOfPagesError and changes nothing."""
    pool = new_pool(impl, 5)
    pages = pool.allocate(3)
    for count in (3, 4, 100):
        out_of_pages(lambda: pool.allocate(count))  # noqa: B023
        assert counted(pool) == state(2, [pages.count(page) for page in range(5)]), "a refused call changes nothing"
    pages += pool.allocate(2)
    assert sorted(pages) == [0, 1, 2, 3, 4], "as many as there are can be had"
    out_of_pages(lambda: pool.allocate(1))


@task_1
def test_task_1_no_pages(impl):
    """A request for zero pages gets an empty list, even from an empty pool."""
    pool = new_pool(impl, 3)
    for taken in (2, 1):
        pool.allocate(taken)
        before = counted(pool)
        got = list(pool.allocate(0))
        assert got == [], "zero pages were asked for"
        pool.share([])
        pool.release([])
        assert counted(pool) == before


@task_1
def test_task_1_pages_are_used_again(impl):
    pool = new_pool(impl, 4)
    pages = pool.allocate(4)
    for count in (1, 3, 4, 2):
        back, pages = pages[:count], pages[count:]
        pool.release(back)
        assert counted(pool) == state(count, [pages.count(page) for page in range(4)])
        pages += pool.allocate(count)
        assert sorted(pages) == [0, 1, 2, 3], "each page is held once"
        pool.check_integrity(Counter(pages))


@task_1
def test_task_1_one_holder_more_one_holder_less(impl):
    """A page with several holders is free when the last of them has released it."""
    pool = new_pool(impl, 6)
    a, b, c = pool.allocate(3)
    steps = [
        (pool.share, [b, c], {a: 1, b: 2, c: 2}),
        (pool.share, [c], {a: 1, b: 2, c: 3}),
        (pool.share, [c], {a: 1, b: 2, c: 4}),
        (pool.release, [a, b, c], {b: 1, c: 3}),
        (pool.release, [c], {b: 1, c: 2}),
        (pool.release, [c, b], {c: 1}),
        (pool.share, [c], {c: 2}),
        (pool.release, [c], {c: 1}),
        (pool.release, [c], {}),
    ]
    for number, (call, pages, held) in enumerate(steps, start=1):
        call(pages)
        expected = state(6 - len(held), [held.get(page, 0) for page in range(6)])
        assert counted(pool) == expected, f"free pages and holders after call {number}"
        pool.check_integrity(held)
    assert sorted(pool.allocate(6)) == [0, 1, 2, 3, 4, 5]


@task_1
def test_task_1_a_page_twice_in_one_call(impl):
    """One call may release a page twice, if two holders release it together."""
    pool = new_pool(impl, 3)
    (page,) = pool.allocate(1)
    pool.share([page])
    pool.share([page])
    pool.release([page, page])
    assert pool.holders(page) == 1, "three held the page, and two of them released it"
    assert pool.num_free == 2, "one of three pages is held"
    pool.share([page])
    pool.release([page, page])
    assert counted(pool) == state(3, [0, 0, 0]), "two held the page, and both released it"
    pool.check_integrity({})


@task_1
def test_task_1_what_is_free_cannot_be_shared(impl):
    """Sharing a free page raises a ValueError and changes nothing. Keep the stub's call of `_check_held`."""
    pool = new_pool(impl, 4)
    pages = pool.allocate(2)
    (free, *_) = (page for page in range(4) if page not in pages)
    before = counted(pool)
    for wrong in ([free], [*pages, free], [pages[0], 4], [-1]):
        refused(lambda: pool.share(wrong))  # noqa: B023
        assert counted(pool) == before, "a refused call changes nothing"
    pool.check_integrity(Counter(pages))


@task_1
def test_task_1_what_is_free_cannot_be_released(impl):
    """Releasing a free page, or a page more often than it is held, is refused. A page that is twice in the list of free
    pages would get two owners."""
    pool = new_pool(impl, 4)
    a, b = pool.allocate(2)
    pool.share([b])
    (free, *_) = (page for page in range(4) if page not in (a, b))
    before = counted(pool)
    for wrong in ([free], [a, free], [a, a], [b, a, b, b], [a, 4], [-1]):
        refused(lambda: pool.release(wrong))  # noqa: B023
        assert counted(pool) == before, "a refused call changes nothing"
    pool.release([b, a])
    refused(lambda: pool.release([a]))
    pool.check_integrity({b: 1})


@task_1
def test_task_1_lists_belong_to_the_caller(impl):
    """The pool does not change the caller's lists, and the caller may change the lists that it gets."""
    pool = new_pool(impl, 6)
    pages = pool.allocate(4)
    kept = list(pages)
    pool.share(pages)
    pool.release(pages)
    assert pages == kept, "the caller's list was changed"
    pages.clear()
    pool.release(tuple(kept[:2]))
    pool.check_integrity(Counter(kept[2:]))
    others = pool.allocate(4)
    others.append(kept[2])
    assert sorted(others + kept[3:]) == [0, 1, 2, 3, 4, 5]


@task_1
def test_task_1_by_chance(impl):
    """Random calls give the same results as naive counting."""
    random = np.random.RandomState(1)
    pool, held = new_pool(impl, 9), Counter()
    for number in range(300):
        pages = [page for page in held.elements() if random.rand() < 0.4]
        match random.randint(3):
            case 0:
                count, free = int(random.randint(4)), 9 - len(held)
                if count > free:
                    out_of_pages(lambda: pool.allocate(count))  # noqa: B023
                else:
                    held.update(pool.allocate(count))
            case 1:
                pages = sorted(set(pages))
                pool.share(pages)
                held.update(pages)
            case 2:
                pool.release(pages)
                held -= Counter(pages)
        expected = state(9 - len(held), [held[page] for page in range(9)])
        assert counted(pool) == expected, f"free pages and holders after {number + 1} calls"
        pool.check_integrity(dict(held))


# --------------------------------------------------------------------------------------------- task 2: page tables


def held(impl, length=1):
    """Return a request with a prompt of this many tokens and without pages."""
    return impl.serving.request.Request("r", [7] * length)


def grow(request, count):
    """Add this many tokens to the output. The list is assigned, because in grading, reading a list gives a copy."""
    request.output = [*request.output, *[7] * count]


def paged(impl, num_pages, page_size=4, num_layers=1, **options):
    return impl.serving.paged_cache.PagedKVCache(num_layers, new_pool(impl, num_pages, page_size), **options)


def begun(impl, cache, length):
    """Return a request of this many tokens (at least one), of which so many are computed."""
    request = held(impl, max(length, 1))
    assert cache.reserve(request, length), f"there is room for {length} positions"
    cache.commit(request, length)
    return request


def pages_of(length, page_size=4):
    """Count how many pages this many positions need."""
    return len({position // page_size for position in range(length)})


def seen(cache, *requests):
    """Return the pages of each request, and the number of free pages."""
    return [list(request.pages) for request in requests], cache.pool.num_free


@task_2
def test_task_2_a_prompt(impl):
    cache, request = paged(impl, 8), held(impl, 6)
    assert cache.reserve(request, 6) is True
    assert (len(request.pages), cache.pool.num_free) == (2, 6), "6 positions, 4 in a page"
    cache.close(request)
    assert (list(request.pages), cache.pool.num_free) == ([], 8), "a request that left holds no page"


@task_2
@pytest.mark.parametrize("computed", [0, 1, 3, 4, 5, 8])
def test_task_2_reserve(impl, computed):
    """`reserve` adds pages to those that the request has, and none while the last page has room."""
    for count in range(14):
        cache = paged(impl, 8)
        request = begun(impl, cache, computed)
        before = list(request.pages)
        assert cache.reserve(request, count)
        after = list(request.pages)
        assert after[: len(before)] == before, "pages stay where they are: new ones come after them"
        expected = pages_of(computed + count)
        assert len(after) == expected, f"pages for {count} positions more, where {computed} are computed"
        assert request.num_computed_tokens == computed, "what is reserved is not computed"
        cache.check_integrity([request])


@task_2
def test_task_2_reserved_twice(impl):
    """After a failed step, the next plan may need as many tokens, fewer, or more. Pages that the request already has
    count."""
    cache = paged(impl, 8)
    request = begun(impl, cache, 6)
    for count, pages in ((1, 2), (1, 2), (5, 3), (2, 3), (0, 3), (6, 3), (7, 4), (1, 4)):
        assert cache.reserve(request, count)
        got = len(request.pages)
        assert got == pages, f"pages, after {count} positions more were asked for"
    cache.check_integrity([request])


@task_2
@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_task_2_one_position_after_the_other(impl, page_size):
    """A page is added when the last one is full, at the end of the request's list."""
    cache, request = paged(impl, 12, page_size), held(impl)
    table = []
    for length in range(1, 13):
        grow(request, int(length > 1))
        assert cache.reserve(request, 1)
        before, table = table, list(request.pages)
        assert len(table) == pages_of(length, page_size), "pages of this many positions"
        assert table[: len(before)] == before, "pages stay where they are: the new one comes at the end"
        cache.commit(request, length)
        assert request.num_computed_tokens == length
        cache.check_integrity([request])


@task_2
def test_task_2_several_requests(impl):
    """Each request has its own pages, anywhere in the pool."""
    cache = paged(impl, 12)
    requests = {}
    for id, count in [("a", 3), ("b", 9), ("a", 2), ("c", 1), ("a", 4), ("b", 3), ("c", 8), ("b", 1), ("a", 1)]:
        before = {other: list(request.pages) for other, request in requests.items()}
        if id in requests:
            grow(requests[id], count)
        else:
            requests[id], before[id] = held(impl, count), []
        assert cache.reserve(requests[id], count)
        cache.commit(requests[id], requests[id].num_tokens)
        for other, each in requests.items():
            after = list(each.pages)
            assert after[: len(before[other])] == before[other], (
                f"pages of {other!r}, when {id!r} got {count} positions"
            )
            assert len(after) == pages_of(len(each.tokens)), f"pages of {other!r}, of {len(each.tokens)} positions"
        cache.check_integrity(requests.values())


@task_2
def test_task_2_no_room(impl):
    """`reserve` returns False if there is no room, and changes nothing."""
    cache = paged(impl, 4)
    a, b = begun(impl, cache, 5), begun(impl, cache, 3)
    before = seen(cache, a, b)
    for request, count in ((a, 8), (b, 6), (b, 100)):
        assert cache.reserve(request, count) is False
        assert seen(cache, a, b) == before, "pages, and how many are free, after a call that was refused"
        cache.check_integrity([a, b])
    assert cache.reserve(a, 7)
    assert cache.reserve(b, 1)
    assert [cache.reserve(request, count) for request, count in ((a, 7), (a, 8), (b, 1), (b, 2))] == [True, False] * 2
    cache.check_integrity([a, b])


@task_2
@pytest.mark.parametrize(
    ("length", "guesses", "accepted"), [(6, 1, 0), (6, 2, 0), (6, 6, 1), (3, 5, 0), (4, 4, 3), (7, 9, 2), (8, 8, 8)]
)
def test_task_2_surplus(impl, length, guesses, accepted):
    """After guesses were rejected, the pages that all tokens need, including the newest, are kept, and the surplus is
    returned."""
    cache = paged(impl, 8)
    request, other = begun(impl, cache, length), begun(impl, cache, 2)
    grow(request, 1)
    assert cache.reserve(request, 1 + guesses)
    before = list(request.pages)
    grow(request, accepted + 1)
    cache.commit(request, length + 1 + accepted)
    kept = before[: pages_of(length + 2 + accepted)]
    assert (list(request.pages), request.num_computed_tokens) == (kept, length + 1 + accepted)
    assert cache.pool.num_free == 8 - len(kept) - 1, "all others are free"
    cache.check_integrity([request, other])


@task_2
def test_task_2_a_prompt_in_parts(impl):
    """Pages for the rest of a prompt are not surplus."""
    cache, request = paged(impl, 8), held(impl, 11)
    assert cache.reserve(request, 11)
    table = list(request.pages)
    for computed in (2, 5, 5, 10, 11):
        cache.commit(request, computed)
        assert (list(request.pages), request.num_computed_tokens) == (table, computed)
        cache.check_integrity([request])


@task_2
def test_task_2_close(impl):
    """All pages of the request are free at once, and none of its tokens counts as computed."""
    cache = paged(impl, 6)
    a, b = begun(impl, cache, 9), begun(impl, cache, 5)
    cache.close(a)
    assert (list(a.pages), a.num_computed_tokens, cache.pool.num_free) == ([], 0, 4)
    cache.check_integrity([b])
    c = begun(impl, cache, 16)
    cache.check_integrity([b, c])
    cache.close(b)
    assert cache.reserve(a, 2), "it may come back"
    cache.check_integrity([a, c])
    cache.close(held(impl))
    cache.check_integrity([a, c])


@task_2
def test_task_2_pages_that_others_hold_too(impl):
    """A request that returns a shared page is one holder less. The page is not free while another request holds it."""
    cache = paged(impl, 6)
    request = held(impl, 4)
    assert cache.reserve(request, 9), "with pages for guesses, which are rejected"
    table = list(request.pages)
    cache.pool.share(table)
    cache.commit(request, 3)
    holders = [cache.pool.holders(page) for page in table]
    assert (holders, cache.pool.num_free) == ([2, 1, 1], 3), "holders of its pages after `commit`, and free pages"
    cache.close(request)
    holders = [cache.pool.holders(page) for page in table]
    assert (holders, cache.pool.num_free) == ([1, 1, 1], 3), "holders of its pages after `close`, and free pages"


class Remembers:
    """A replacement for day 5's prefixes that holds some pages, evicts them on request, and notes its calls."""

    def __init__(self, pool=None, count=0):
        self.pool, self.pages = pool, pool.allocate(count) if pool else []
        self.told = []

    def evict(self, count):
        self.told.append(("evict", count))
        for _ in range(min(max(count, 0), len(self.pages))):
            self.pool.release([self.pages.pop()])

    def keep(self, stored):
        self.told.append(("keep", len(stored.tokens), stored.num_computed_tokens))

    def held(self):
        return self.pages


@task_2
def test_task_2_pages_that_are_only_remembered(impl):
    """If there are too few free pages, `prefixes` is asked for exactly the missing ones, and never without need."""
    cache = paged(impl, 8)
    cache.prefixes = prefixes = Remembers(cache.pool, 5)
    request = held(impl, 30)
    for count, room, told, free in (
        (8, True, [], 1),
        (16, True, [("evict", 1)], 0),
        (12, True, [], 0),
        (17, True, [("evict", 1)], 0),
        (40, False, [("evict", 5)], 3),
        (24, True, [], 2),
    ):
        prefixes.told.clear()
        assert (cache.reserve(request, count), prefixes.told, cache.pool.num_free) == (room, told, free), count
        cache.check_integrity([request])


@task_2
def test_task_2_what_is_computed_may_be_remembered(impl):
    """`prefixes.keep` is called after each step, when the request's new number of computed tokens is set."""
    cache = paged(impl, 8)
    cache.prefixes = prefixes = Remembers()
    request = held(impl, 11)
    cache.reserve(request, 11)
    for computed in (4, 9, 11):
        cache.commit(request, computed)
    assert prefixes.told == [("keep", 11, 4), ("keep", 11, 9), ("keep", 11, 11)]


@task_2
def test_task_2_by_chance(impl):
    """Requests arrive, grow, have guesses rejected and leave. No page is lost, and none is held twice."""
    random = np.random.RandomState(2)
    cache, requests, pages = paged(impl, 20, page_size=3), {}, {}
    for number in range(300):
        id, count = "abcdef"[random.randint(6)], int(random.randint(8))
        free = 20 - sum(pages.values())
        if id not in requests:
            requests[id], pages[id] = held(impl), 0
        elif random.rand() < 0.8:
            request = requests[id]
            missing = pages_of(request.num_computed_tokens + count, 3) - pages[id]
            has_room = cache.reserve(request, count)
            assert has_room == (missing <= free), f"room for {missing} pages where {free} are free"
            pages[id] += max(missing, 0) if has_room else 0
            if has_room and count and random.rand() < 0.7:  # otherwise the step fails
                right = int(random.randint(1, count + 1))
                grow(request, right)
                cache.commit(request, request.num_computed_tokens + right)
                pages[id] = min(pages[id], pages_of(len(request.tokens), 3))
        else:
            cache.close(requests.pop(id))
            del pages[id]
        cache.check_integrity(requests.values())
        assert {id: len(request.pages) for id, request in requests.items()} == pages, f"after {number + 1} calls"
        assert cache.pool.num_free == 20 - sum(pages.values()), f"free pages after {number + 1} calls"


# ---------------------------------------------------------------------------- task 3: keys and values in pages

H_Q, H_KV, HEAD_DIM = 6, 2, 5


def new_layer(impl, num_pages, page_size):
    return impl.serving.paged_cache.PagedKVCacheLayer(num_pages, page_size)


def rows(inputs, T, H_kv=H_KV):
    """Return keys and values of T rows, T x H_kv x 1 x D."""
    return inputs.normal(T, H_kv, 1, HEAD_DIM), inputs.normal(T, H_kv, 1, HEAD_DIM)


class Written:
    """A layer, with the key and the value that each of its places should hold."""

    def __init__(self, impl, inputs, num_pages, page_size):
        self.layer = new_layer(impl, num_pages, page_size)
        self.inputs, self.page_size = inputs, page_size
        self.places = {}

    def store(self, places):
        """Store rows. places: pairs of a page and a place in it."""
        key, value = rows(self.inputs, len(places))
        numbers = (mx.array(list(each)) for each in zip(*places, strict=True))
        self.layer.store(key, value, *numbers)
        for t, place in enumerate(places):
            self.places[place] = array64(key)[t, :, 0], array64(value)[t, :, 0]

    def check(self):
        """Check that the arrays hold every key and value in its place."""
        for array, of in ((self.layer.keys, 0), (self.layer.values, 1)):
            pages, places = (mx.array(list(numbers)) for numbers in zip(*self.places, strict=True))
            expected = np.array([stored[of] for stored in self.places.values()])
            assert_close(array[pages, :, places], expected, dtype=self.inputs.dtype, tolerance=0)

    def check_gathered(self, table, length):
        places = [(table[position // self.page_size], position % self.page_size) for position in range(length)]
        got = self.layer.gather(table, length)
        for array, of in zip(got, (0, 1), strict=True):
            expected = np.stack([self.places[place][of] for place in places], axis=1)[None]
            assert_close(array, expected, dtype=self.inputs.dtype, tolerance=0)


@task_3
def test_task_3_one_page(impl):
    layer = new_layer(impl, 3, 4)
    key, value = rows(Inputs(1), 3, H_kv=1)
    layer.store(key, value, mx.array([0, 0, 0]), mx.array([0, 1, 2]))
    keys, values = layer.gather([0], 3)
    assert_close(keys, array64(key).reshape(1, 1, 3, HEAD_DIM), tolerance=0)
    assert_close(values, array64(value).reshape(1, 1, 3, HEAD_DIM), tolerance=0)


@task_3
@over_dtypes
def test_task_3_each_row_in_its_place(impl, dtype):
    """The rows of one step go to pages of several requests, and all other places stay unchanged."""
    written = Written(impl, Inputs(2, dtype), num_pages=5, page_size=3)
    for places in (
        [(1, 0), (1, 1), (4, 0)],
        [(3, 2)],
        [(0, 0), (0, 1), (0, 2), (2, 0)],
        [(1, 2), (4, 1)],
    ):
        written.store(places)
        written.check()
    shape = (5, H_KV, 3, HEAD_DIM)
    got = written.layer.keys.shape, written.layer.values.shape
    assert got == (shape, shape), "keys and values: P x H_kv x page_size x D"


@task_3
@pytest.mark.parametrize("dtypes", [(mx.float32, mx.float16), (mx.bfloat16, mx.float32)], ids=str)
def test_task_3_keys_and_values_each_in_their_dtype(impl, dtypes):
    layer = new_layer(impl, 3, 2)
    arrays = [array.astype(dtype) for array, dtype in zip(rows(Inputs(7), 3), dtypes, strict=True)]
    layer.store(*arrays, mx.array([0, 0, 2]), mx.array([0, 1, 0]))
    for got, array, dtype in zip(layer.gather([0, 2], 3), arrays, dtypes, strict=True):
        assert_close(got, array64(array)[:, :, 0].swapaxes(0, 1)[None], dtype=dtype, tolerance=0)


@task_3
def test_task_3_over_what_was_there(impl):
    """A page is given to another request, which overwrites the contents."""
    written = Written(impl, Inputs(3), num_pages=3, page_size=2)
    written.store([(0, 0), (0, 1), (2, 0), (2, 1)])
    written.store([(2, 0), (0, 1)])
    written.check()
    written.check_gathered([0, 2], 4)


@task_3
@over_dtypes
@pytest.mark.parametrize(
    ("table", "length"),
    [([2], 3), ([2, 3], 4), ([4, 0, 2], 7), ([4, 0, 2], 9), ([1, 3, 0, 2], 5), ([3, 1, 4, 0, 2], 1), ([0, 4, 1], 8)],
    ids=str,
)
def test_task_3_gather(impl, table, length, dtype):
    """`gather` takes pages in the order of the table, up to `length`, even if the table has more pages."""
    written = Written(impl, Inputs(4, dtype), num_pages=5, page_size=3)
    written.store([(page, slot) for page in range(5) for slot in range(3)])
    before = list(table)
    written.check_gathered(table, length)
    assert table == before, "the table is the cache's, and was changed"


@task_3
def test_task_3_what_was_gathered_stays(impl):
    """The result is a copy: later writes do not change it, and writing into it does not change the stored arrays."""
    written = Written(impl, Inputs(5), num_pages=3, page_size=2)
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    written.store(places)
    keys, values = written.layer.gather([1, 0], 4)
    before = [array64(keys), array64(values)]
    written.store(places)
    assert_close(keys, before[0], tolerance=0)
    assert_close(values, before[1], tolerance=0)
    keys[:] = 0
    written.check()


class Recorder:
    """A layer that keeps the description of the rows, and does not attend."""

    def __init__(self):
        self.seen = []

    def attend(self, query, key, value, scale, where):
        spans = [(span.first, span.last, span.length) for span in where.spans]
        tables = [list(table) for table in where.tables]
        self.seen.append((where.pages.tolist(), where.places.tolist(), spans, tables, scale))
        return query


def chunks_of(impl, cache, requests, takes):
    """Return a chunk of this many tokens for each of these requests. The cache reserves room for them and counts them
    as computed."""
    found = []
    for id, count in takes:
        request, start = requests[id], requests[id].num_computed_tokens
        grow(request, count)
        assert cache.reserve(request, count), f"there is room for {count} tokens of {id!r}"
        found.append(impl.serving.batch.Chunk(request, (7,) * count, start, 1, request.pages))
        cache.commit(request, start + count)
    return tuple(found)


STEPS = [  # the number of tokens of each request in each step
    [("a", 5)],
    [("b", 1), ("a", 1)],
    [("a", 2), ("c", 7), ("b", 1)],
    [("b", 1), ("c", 1)],
    [("c", 4), ("b", 9), ("a", 1)],
    [("a", 1)],
]


def opened(impl, num_layers=1, page_size=3):
    """Return a cache, and three requests whose pages get mixed."""
    return paged(impl, 14, page_size, num_layers), {id: held(impl) for id in "cab"}


@task_3
def test_task_3_where_each_row_belongs(impl):
    """Each row has the page and place of its position, and each chunk has its rows and its request's table."""
    cache, requests = opened(impl)
    for number, takes in enumerate(STEPS):
        recorder = Recorder()
        cache.layers = [recorder]
        chunks = chunks_of(impl, cache, requests, takes)
        step = cache.step(chunks)
        query = mx.zeros((sum(count for _, count in takes), 1, 1, 1))
        step.layers[0].attend(query, query, query, 0.5)
        expected, spans = [], []
        for id, count in takes:
            length = requests[id].num_computed_tokens
            table = list(requests[id].pages)
            expected += [(table[position // 3], position % 3) for position in range(length - count, length)]
            first = spans[-1][1] if spans else 0
            spans.append((first, first + count, length))
        pages, places, *rest = recorder.seen[0]
        got = list(zip(pages, places, strict=True))
        assert got == expected, f"page and place of each row of step {number + 1}"
        assert rest == [spans, [list(requests[id].pages) for id, _ in takes], 0.5], "spans, tables and scale"


@task_3
def test_task_3_a_chunk_brings_its_pages_along(impl):
    """A chunk's pages may differ from its request's pages in another cache, because a draft model has its own cache
    (day 6)."""
    cache, request, recorder = paged(impl, 8, 3), held(impl, 6), Recorder()
    request.pages, cache.layers = [1, 0], [recorder]
    step = cache.step([impl.serving.batch.Chunk(request, (7,) * 4, 2, 1, [6, 2])])
    query = mx.zeros((4, 1, 1, 1))
    step.layers[0].attend(query, query, query, None)
    assert recorder.seen == [([6, 2, 2, 2], [2, 0, 1, 2], [(0, 4, 6)], [[6, 2]], None)], "pages, places, spans, tables"


@task_3
def test_task_3_the_positions_of_a_step(impl):
    """Each row has its own position, which RoPE uses."""
    cache, requests = opened(impl)
    for takes in STEPS:
        step = cache.step(chunks_of(impl, cache, requests, takes))
        ends = {id: requests[id].num_computed_tokens for id in requests}
        expected = [p for id, count in takes for p in range(ends[id] - count, ends[id])]
        assert step.layers[0].offset.tolist() == expected
        step.advance(1)


@task_3
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_task_3_each_attends_to_its_own(impl, page_size, scale):
    """In every layer and step, a row sees the stored positions of its own request, up to its own position, and nothing
    else."""
    inputs = Inputs(8)
    cache = paged(impl, 40, page_size, num_layers=2)
    stored = {id: [[] for _ in cache.layers] for id in "bca"}
    requests = {id: held(impl) for id in stored}
    for takes in STEPS:
        step = cache.step(chunks_of(impl, cache, requests, takes))
        T = sum(count for _, count in takes)
        for number, layer in enumerate(step.layers):
            query, (key, value) = inputs.normal(T, H_Q, 1, HEAD_DIM), rows(inputs, T)
            q, k, v = (array64(array)[:, :, 0] for array in (query, key, value))  # each T x heads x D
            expected, first = [], 0
            for id, count in takes:
                here = slice(first, first + count)
                first += count
                stored[id][number] += [(k[t], v[t]) for t in range(here.start, here.stop)]
                keys, values = (np.stack(arrays, axis=1) for arrays in zip(*stored[id][number], strict=True))
                mask = oracles.causal_mask(count, keys.shape[1])
                attended = oracles.grouped_attention(q[here].swapaxes(0, 1), keys, values, scale, mask)
                expected.append(attended.swapaxes(0, 1))
            assert_close(layer.attend(query, key, value, scale), np.concatenate(expected)[:, :, None])


def new_model(impl, folder):
    config = untrained_config("qwen3", num_hidden_layers=2)
    shapes = impl.given.weights.expected_shapes(impl.given.config.ModelConfig.from_hf(config))
    write_untrained(folder, config, shapes, seed=3)
    return impl.models.load_model(folder)


SAMPLING = [
    {"max_tokens": 9},
    {"max_tokens": 12, "temperature": 1.0, "seed": 5},
    {"max_tokens": 4, "temperature": 0.8, "top_k": 20, "seed": 6},
    {"max_tokens": 15, "repetition_penalty": 1.3},
    {"max_tokens": 1},
    {"max_tokens": 10, "temperature": 1.2, "top_p": 0.9, "seed": 7},
]


def requests_of(impl, lengths):
    """Return requests with prompts of these lengths, each with its own way to choose tokens."""
    serving = impl.serving.request
    prompts = [np.array(Inputs(40 + i).tokens(length, vocab_size=256)).tolist() for i, length in enumerate(lengths)]
    return [
        serving.Request(f"r{i}", prompt, serving.SamplingParams(**SAMPLING[i % len(SAMPLING)]))
        for i, prompt in enumerate(prompts)
    ]


def alone(impl, model, request):
    """Return what a request gets without other requests, by week 2's loop."""
    params = request.params
    sampler = impl.serving.distributions.sampler_of(params)
    eos_token_ids = model.config.eos_token_ids
    return list(impl.generate.generate(model, list(request.prompt), sampler, params.max_tokens, eos_token_ids))


def check_alone(impl, model, requests):
    """Fail unless each request has got, token for token, what it gets alone."""
    for request in requests:
        got, expected = list(request.output), alone(impl, model, request)
        assert got == expected, f"output of {request.id!r}, and what it gets alone"


@task_3
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_task_3_token_for_token(impl, tmp_path, page_size):
    """Requests that share steps get what each of them gets alone."""
    model = new_model(impl, tmp_path)
    cache = paged(impl, 160 // page_size, page_size, num_layers=len(model.layers))
    engine = impl.serving.engine.Engine(model, impl.serving.scheduler.Scheduler(cache, 3), is_checked=True)
    requests = requests_of(impl, [7, 16, 1, 20])
    for request in requests:
        engine.add(request)
    for _ in range(60):
        if engine.has_work:
            engine.step()
    check_alone(impl, model, requests)
    cache.check_integrity([])


# ------------------------------------------------------------------------------------- task 4: when pages run out


def preempting(impl, cache, max_running, token_budget):
    module = impl.serving.scheduler
    return module.Scheduler(cache, max_running, module.TokenBudget(token_budget), module.PreemptNewest())


class Plan:
    """A scheduler and a cache in pages, without a model: a request gets token 7 after each chunk with logits."""

    def __init__(self, impl, num_pages, prompts, max_running=8, token_budget=64, cache=None):
        self.cache = cache or paged(impl, num_pages)
        self.scheduler = preempting(impl, self.cache, max_running, token_budget)
        self.batch = impl.serving.batch.Batch
        self.requests = {}
        for id, length in zip("abcdefgh", prompts, strict=False):
            params = impl.serving.request.SamplingParams(max_tokens=1000, seed=1)
            self.requests[id] = impl.serving.request.Request(id, [1] * length, params)
            self.scheduler.add(self.requests[id])

    def step(self):
        """Return the next step: request, start, tokens and number of logits of each chunk, and the preempted
        requests."""
        batch = self.scheduler.schedule()
        chunks = [(chunk.request.id, chunk.start, len(chunk.tokens), chunk.num_logits) for chunk in batch.chunks]
        self.scheduler.check_integrity()
        for chunk in batch.chunks:
            if chunk.num_logits:
                chunk.request.add(7, (), 10_000)
            self.cache.commit(chunk.request, chunk.end)
        self.scheduler.check_integrity()
        return chunks, list(batch.preempted)

    def make_room(self, id, count, batch):
        """Return the result of `make_room` for this request, and the requests that were preempted for it."""
        scheduler, before = self.scheduler, len(batch.preempted)
        has_room = scheduler.preemption.make_room(scheduler, self.requests[id], count, batch)
        scheduler.check_integrity()
        return has_room, list(batch.preempted)[before:]

    def chunk(self, id, count):
        """Return a chunk of this many tokens, as another request of this step may have one."""
        return self.scheduler.take(self.requests[id], count)

    def finish(self, id):
        self.scheduler.remove(self.requests[id])

    @property
    def running(self):
        return [request.id for request in self.scheduler.running]

    @property
    def waiting(self):
        return [request.id for request in self.scheduler.waiting]


@task_4
def test_task_4_the_newest_makes_room(impl):
    plan = Plan(impl, 4, [4, 4])
    assert plan.step() == ([("a", 0, 4, 1), ("b", 0, 4, 1)], [])
    for position in (4, 5, 6, 7):
        assert plan.step() == ([("a", position, 1, 1), ("b", position, 1, 1)], []), "there is room for both"
    chunks, _ = plan.step()
    assert chunks == [("a", 8, 1, 1)], "no page is free: the newest gives way"
    assert (plan.running, plan.waiting) == (["a"], ["b"])


@task_4
def test_task_4_preempt(impl):
    """A preempted request leaves the cache, keeps prompt and output, and becomes the first waiting request. Its chunk
    is withdrawn."""
    plan = Plan(impl, 10, [5, 6, 7, 3], max_running=3)
    plan.step()
    plan.step()
    b, batch = plan.requests["b"], plan.batch([plan.chunk(id, 1) for id in "abc"])
    plan.scheduler.preemption.preempt(plan.scheduler, b, batch)
    got = plan.running, plan.waiting, b.status.value, list(b.prompt), list(b.output), b.finish_reason
    assert got == (["a", "c"], ["b", "d"], "waiting", [1] * 6, [7, 7], None), "running, waiting, and what is left of it"
    assert ([chunk.request.id for chunk in batch.chunks], batch.num_tokens, batch.preempted) == (["a", "c"], 2, ["b"])
    plan.scheduler.check_integrity()
    free = plan.cache.pool.num_free
    assert free == 10 - pages_of(6) - pages_of(8), "pages that are free once it has left"
    plan.scheduler.preemption.preempt(plan.scheduler, plan.requests["a"], batch)
    assert (plan.running, plan.waiting) == (["c"], ["a", "b", "d"])
    assert ([chunk.request.id for chunk in batch.chunks], batch.preempted) == (["c"], ["b", "a"])
    plan.scheduler.check_integrity()


@task_4
def test_task_4_nothing_else_of_a_preempted_request_changes(impl):
    """Preemption does not change the request's random state, so its next random number is the same, nor the data about
    its output."""
    plan = Plan(impl, 10, [5, 6])
    plan.step()
    a, b = plan.requests["a"], plan.requests["b"]
    assert a.random.random() == b.random.random(), "both have the same seed"
    b.logprobs = ["of its first token"]
    plan.scheduler.preemption.preempt(plan.scheduler, b, plan.batch())
    assert b.random.random() == a.random.random(), "the second random number of this seed"
    assert (list(b.output), list(b.logprobs)) == ([7], ["of its first token"])


@task_4
def test_task_4_what_was_preempted_is_computed_anew(impl):
    """When there is room, all tokens of the preempted request are computed again, including its output. Then it goes
    on."""
    plan = Plan(impl, 4, [4, 4])
    for _ in range(6):
        plan.step()
    assert (plan.running, plan.waiting) == (["a"], ["b"])
    for start in (9, 10, 11):
        assert plan.step() == ([("a", start, 1, 1)], []), "one page is free, and b needs three"
    plan.finish("a")
    b = plan.requests["b"]
    assert plan.step() == ([("b", 0, 9, 1)], []), "prompt and output, with logits after the last"
    assert plan.step() == ([("b", 9, 1, 1)], [])
    assert list(b.output) == [7] * 7, "five before it was preempted, two after"


@task_4
def test_task_4_the_newest_may_be_the_one_that_asks(impl):
    """The newest request may be the one that needs room. Then it gets no chunk, and the others get theirs."""
    plan = Plan(impl, 5, [4, 4, 4])
    plan.step()
    assert plan.step() == ([("a", 4, 1, 1), ("b", 4, 1, 1)], ["c"]), "two pages were free, and three were needed"
    assert (plan.running, plan.waiting) == (["a", "b"], ["c"])
    assert plan.step() == ([("a", 5, 1, 1), ("b", 5, 1, 1)], []), "one page is free: c needs two, and waits"


@task_4
def test_task_4_several_requests_need_room(impl):
    """For each request that needs room, the newest is preempted. Preempted requests wait in the order of their arrival,
    before all others."""
    plan = Plan(impl, 4, [4, 4, 4, 4, 1], max_running=4)
    plan.step()
    assert plan.step() == ([("a", 4, 1, 1), ("b", 4, 1, 1)], ["d", "c"]), "who was preempted, in that order"
    assert (plan.running, plan.waiting) == (["a", "b"], ["c", "d", "e"])


@task_4
def test_task_4_one_request_needs_much_room(impl):
    """Requests are preempted one by one until there is room, and no more. Their chunks of this step are withdrawn."""
    plan = Plan(impl, 8, [7, 2, 6, 1, 1])
    plan.step()
    assert plan.cache.pool.num_free == 1
    batch = plan.batch([plan.chunk(id, 1) for id in "bcde"])
    assert plan.make_room("a", 13, batch) == (True, ["e", "d"]), "three pages: a free one, one of e, one of d"
    assert [chunk.request.id for chunk in batch.chunks] == ["b", "c"]
    assert batch.num_tokens == 2, "what they leave of the budget is for others"
    assert len(plan.requests["a"].pages) == 5
    assert plan.make_room("a", 13, batch) == (True, []), "it has room now"
    assert plan.make_room("d", 1, batch) == (False, []), "whoever was preempted in this step has no chunk in it"
    assert plan.make_room("b", 99, batch) == (False, ["c", "b"]), "all that are newer, then the request itself"
    assert (plan.running, plan.waiting) == (["a"], ["b", "c", "d", "e"])


@task_4
def test_task_4_a_prompt_has_all_its_pages(impl):
    """All pages of a prompt are reserved when it begins, however small its chunks are."""
    plan = Plan(impl, 4, [4, 12, 1], max_running=3, token_budget=5)
    assert plan.step() == ([("a", 0, 4, 1), ("b", 0, 1, 0)], [])
    assert (plan.cache.pool.num_free, len(plan.requests["b"].pages)) == (0, 3), "for all its tokens, computed or not"
    assert plan.step() == ([("a", 4, 1, 1)], ["b"]), "a needs a second page"
    assert (plan.running, plan.waiting) == (["a"], ["b", "c"])


@task_4
def test_task_4_nothing_left_of_the_budget(impl):
    """A request without a share of the budget needs no pages, gets no chunk and goes on running."""
    plan = Plan(impl, 7, [5, 9, 5], max_running=3, token_budget=3)
    starts = [("a", 0, 3, 0)], [("a", 3, 2, 1), ("b", 0, 1, 0)], [("a", 5, 1, 1), ("b", 1, 2, 0)]
    for chunks in starts:
        assert plan.step() == (chunks, [])
    for start in (3, 5):
        assert plan.step()[0][1] == ("b", start, 2, 0)
    plan.requests["a"].num_computed_tokens -= 4  # makes five tokens pending, including the newest
    assert plan.step() == ([("a", 4, 3, 0)], []), "b runs, and nothing of the budget is left for it"
    assert plan.running == ["a", "b"]


class Positions:
    """A cache that counts positions, and accepts every request as if its tokens were stored already."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.held = []

    def open(self, stored):
        self.held.append(stored)
        return True

    def reserve(self, stored, count):
        return sum(each.num_computed_tokens for each in self.held) + count <= self.capacity

    def commit(self, stored, num_computed_tokens):
        stored.num_computed_tokens = num_computed_tokens

    def close(self, stored):
        self.held.remove(stored)
        stored.num_computed_tokens = 0

    def check_integrity(self, held):
        assert self.held == list(held), "the cache holds those that run"


@task_4
def test_task_4_no_request_begins_in_a_step_that_preempts(impl):
    """No request begins in a step that preempts. It would take the freed room, and might be the preempted request
    itself."""
    plan = Plan(impl, 0, [3, 3, 1], max_running=2, cache=Positions(6))
    assert plan.step() == ([("a", 0, 3, 1), ("b", 0, 3, 1)], [])
    assert plan.step() == ([("a", 3, 1, 1)], ["b"]), "two positions are free, and nobody begins"
    assert (plan.running, plan.waiting) == (["a"], ["b", "c"])


class Counts:
    """A scheduler by the docstrings, made of plain numbers."""

    def __init__(self, num_pages, max_running, token_budget, prompts):
        self.num_pages, self.max_running, self.token_budget = num_pages, max_running, token_budget
        self.tokens = dict(prompts)
        self.waiting, self.running, self.computed, self.pages = list(prompts), [], {}, {}

    def reserve(self, id, length):
        """Reserve pages for this many positions, if there are enough."""
        missing = pages_of(length) - self.pages.get(id, 0)
        if missing > self.num_pages - sum(self.pages.values()):
            return False
        self.pages[id] = self.pages.get(id, 0) + max(missing, 0)
        return True

    def step(self):
        self.chunks, preempted = {}, []
        ones = [id for id in self.running if self.tokens[id] - self.computed[id] == 1]
        for id in ones + [id for id in self.running if id not in ones]:
            if id in preempted:
                continue
            count = self.count(id)
            while count and id in self.running and not self.reserve(id, self.computed[id] + count):
                preempted.append(self.running.pop())
                self.waiting.insert(0, preempted[-1])
                self.chunks.pop(preempted[-1], None)
                del self.computed[preempted[-1]], self.pages[preempted[-1]]
            if id in self.running:
                self.take(id, count)
        while not preempted and self.waiting and len(self.running) < self.max_running:
            id = self.waiting[0]
            if self.token_budget == self.used() or not self.reserve(id, self.tokens[id]):
                break
            self.running.append(self.waiting.pop(0))
            self.computed[id] = 0
            self.take(id, self.count(id))
        chunks = []
        for id, (start, count) in self.chunks.items():
            self.computed[id] += count
            num_logits = int(self.computed[id] == self.tokens[id])
            self.tokens[id] += num_logits
            chunks.append((id, start, count, num_logits))
        return chunks, preempted

    def used(self):
        return sum(count for _, count in self.chunks.values())

    def count(self, id):
        return min(self.tokens[id] - self.computed[id], self.token_budget - self.used())

    def take(self, id, count):
        if count:
            self.chunks[id] = self.computed[id], count


@task_4
@pytest.mark.parametrize(
    ("num_pages", "max_running", "token_budget"), [(12, 8, 8), (9, 4, 16), (8, 8, 64), (14, 3, 5), (40, 3, 4)]
)
def test_task_4_step_by_step(impl, num_pages, max_running, token_budget):
    """Eight requests are served until the last is finished, and each step is compared with one computed from plain
    numbers."""
    random = np.random.RandomState(num_pages)
    prompts = [int(length) for length in random.randint(1, 20, 8)]
    ends = dict(zip("abcdefgh", (length + int(random.randint(1, 12)) for length in prompts), strict=True))
    plan = Plan(impl, num_pages, prompts, max_running, token_budget)
    counts = Counts(num_pages, max_running, token_budget, dict(zip(ends, prompts, strict=True)))
    times = 0
    for number in range(400):
        if not counts.running and not counts.waiting:
            break
        expected = counts.step()
        got = plan.step()
        assert got == expected, f"chunks and preempted requests of step {number + 1}"
        assert (plan.running, plan.waiting) == (counts.running, counts.waiting), f"after step {number + 1}"
        times += len(expected[1])
        for id in [id for id in counts.running if counts.tokens[id] == ends[id]]:
            plan.finish(id)
            counts.running.remove(id)
            del counts.computed[id], counts.pages[id]
    assert not plan.running
    assert not plan.waiting
    assert (times > 0) == (num_pages < 40), "all but the last of these pools are too small"
    plan.cache.check_integrity([])


class Watch:
    """An observer that notes preempted requests."""

    def __init__(self):
        self.preempted = []

    def on_step(self, engine, batch, touched):
        self.preempted += list(batch.preempted)

    def on_abort(self, engine, request):
        """Do nothing."""


@task_4
@pytest.mark.parametrize(("num_pages", "page_size", "token_budget"), [(8, 4, 4), (8, 4, 64), (32, 1, 64)])
def test_task_4_token_for_token(impl, tmp_path, num_pages, page_size, token_budget):
    """There are few pages, so requests are preempted. Each gets what it gets alone, even with sampling, and each
    ends."""
    model = new_model(impl, tmp_path)
    cache = paged(impl, num_pages, page_size, num_layers=len(model.layers))
    scheduler = preempting(impl, cache, 4, token_budget)
    watch = Watch()
    engine = impl.serving.engine.Engine(model, scheduler, (watch,), is_checked=True)
    requests = requests_of(impl, [7, 12, 3, 17, 1, 9])
    for request in requests:
        engine.add(request)
    for _ in range(200):
        if engine.has_work:
            engine.step()
    assert [request.finish_reason for request in requests] == ["length"] * 6, "after 200 steps all are over"
    check_alone(impl, model, requests)
    assert len(watch.preempted) > 1, "this pool is too small for all of them"
    cache.check_integrity([])


@task_4
def test_task_4_aborted(impl, tmp_path):
    """A request may be aborted while it runs or after it was preempted. Its pages are free at once, and the others get
    what they get alone."""
    model = new_model(impl, tmp_path)
    cache = paged(impl, 8, 4, num_layers=len(model.layers))
    scheduler = preempting(impl, cache, 4, 64)
    engine = impl.serving.engine.Engine(model, scheduler, is_checked=True)
    requests = requests_of(impl, [7, 12, 3, 17, 1, 9])
    for request in requests:
        engine.add(request)
    preempted = None
    for _ in range(50):
        engine.step()
        preempted = next((request for request in scheduler.waiting if request.output), None)
        if preempted is not None:
            break
    assert preempted is not None, "one of these requests has to be preempted after its first token"
    oldest = next(iter(scheduler.running))
    free, pages = cache.pool.num_free, len(oldest.pages)
    engine.abort(preempted.id)
    assert cache.pool.num_free == free, "who waits has no pages"
    engine.abort(oldest.id)
    assert cache.pool.num_free == free + pages, "free pages, once the oldest is aborted"
    engine.check_integrity()
    for _ in range(200):
        if engine.has_work:
            engine.step()
    check_alone(impl, model, [r for r in requests if r.id not in (preempted.id, oldest.id)])
    cache.check_integrity([])
