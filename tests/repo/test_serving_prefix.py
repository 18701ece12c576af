"""The prefix cache over a long time: thousands of random operations, and engines with few pages, failures and guesses.

Whatever is shared, copied and forgotten, a request reads the keys and values of its own tokens, and gets the result
that it gets alone.
"""

import zlib
from collections import Counter

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import random_weights, untrained_config
from tiny_llm_ref.generate import generate
from tiny_llm_ref.models import build_model
from tiny_llm_ref.serving.batch import Chunk
from tiny_llm_ref.serving.distributions import sampler_of
from tiny_llm_ref.serving.drafters import ModelDrafter, NGramDrafter
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import PagedKVCache
from tiny_llm_ref.serving.prefix_cache import PrefixCache
from tiny_llm_ref.serving.prefix_tree import PrefixTree, common
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget
from tiny_llm_ref.serving.speculative import Speculative

MODULUS = 2**61 - 1  # ints that differ by this number have the same hash, and so do tuples of such ints
ALPHABET = (1, 2, 1 + MODULUS, 2 + MODULUS)


def code(text):
    """Return a number that identifies a text."""
    return zlib.crc32(repr(text).encode()) % 1_000_000


def prefix_cache(num_layers, pool):
    return PagedKVCache(num_layers, pool, PrefixCache(pool))


def preempting(cache, max_running, budget):
    return Scheduler(cache, max_running, TokenBudget(budget), PreemptNewest())


def text_of(node):
    text = ()
    while node.parent is not None:
        text, node = node.tokens + text, node.parent
    return text


class Stored:
    """A request as a cache sees it."""

    def __init__(self, tokens):
        self.tokens, self.pages, self.num_computed_tokens = tokens, [], 0


class Operations:
    """A cache, its requests, and the content that each page must have.

    A step writes one number per position, in place of keys, into a list. After each operation, the numbers in each page
    are compared with the numbers for the page's text.
    """

    def __init__(self, num_pages, page_size, seed):
        self.random = np.random.RandomState(seed)
        self.pool = PagePool(num_pages, page_size)
        self.cache = prefix_cache(0, self.pool)
        self.cache.layers = [self]
        self.written = [[0] * page_size for _ in range(num_pages)]
        self.requests = []
        self.done = Counter()

    @property
    def tree(self):
        return self.cache.prefixes.tree

    def copy_page(self, source, target):
        """Copy a page as a layer does."""
        assert self.pool.holders(target) == 1, "a page is written that others hold, too"
        self.written[target] = list(self.written[source])
        self.done["copied"] += 1

    def one_of(self, values):
        return list(values)[self.random.randint(len(values))]

    def some_tokens(self, most):
        size = len(ALPHABET) if self.random.rand() < 0.2 else 2
        return [ALPHABET[i] for i in self.random.randint(0, size, self.random.randint(1, most))]

    def open(self):
        request = Stored(self.some_tokens(6 * self.pool.page_size))
        best = max((common(text_of(node), request.tokens[:-1]) for node in self.tree.root), default=0)
        size, known = self.pool.page_size, {text_of(node): node.page for node in self.tree.root}
        whole = [known[tuple(request.tokens[:end])] for end in range(size, best + 1, size)]
        unused = sum(self.pool.holders(page) == 1 for page in whole)  # no request can find these pages any more
        needed = self.pool.pages_for(len(request.tokens)) - len(whole)
        has_room = needed <= self.pool.num_free + self.tree.num_evictable - unused
        assert self.cache.open(request) == has_room
        self.done["evicted"] += len(known) - len(list(self.tree.root))
        if has_room:
            assert request.num_computed_tokens == best
            assert request.pages[: len(whole)] == whole
            self.done["found"] += best
            self.requests.append(request)
        else:
            self.done["no room"] += 1
            assert (request.pages, request.num_computed_tokens) == ([], 0)

    def reserve(self, request):
        """Add some tokens, some of which are guesses, and reserve room for all of them, or for none."""
        request.tokens = request.tokens + self.some_tokens(4)
        count, before = len(request.tokens) - request.num_computed_tokens, list(request.pages)
        missing = self.pool.pages_for(len(request.tokens)) - len(before)
        free, gone = self.pool.num_free + self.tree.num_evictable, self.next_to_go(missing - self.pool.num_free)
        known = {text_of(node) for node in self.tree.root}
        assert self.cache.reserve(request, count) == (missing <= free)
        assert known - {text_of(node) for node in self.tree.root} == gone
        assert request.pages[: len(before)] == before
        self.done["evicted"] += len(gone)
        if missing > free:
            self.done["no room"] += 1
            assert request.pages == before
            request.tokens = request.tokens[: request.num_computed_tokens + 1]

    def next_to_go(self, count):
        """Return the texts of the next pages to evict: each time the least recently used of the pages that only the
        tree holds and that have no child."""
        left = {text_of(node): node for node in self.tree.root}
        gone = set()
        for _ in range(count):
            parents = {text[: -self.pool.page_size] for text in left}
            free = [text for text in left if text not in parents and self.pool.holders(left[text].page) == 1]
            if free:
                oldest = min(free, key=lambda text: left[text].last_used)
                gone.add(oldest)
                del left[oldest]
        return gone

    def step(self):
        """Compute the pending tokens of some requests. The model may fail, and guesses may be wrong."""
        chosen, chunks = [], []
        for request in self.requests:
            start, pending = request.num_computed_tokens, len(request.tokens) - request.num_computed_tokens
            count = self.random.randint(1, pending + 1)
            if self.random.rand() < 0.7 and self.cache.reserve(request, count):
                chosen.append(request)
                tokens = request.tokens[start : start + count]
                chunks.append(Chunk(Request("a", request.tokens), tokens, start, 1, request.pages))
        if not chosen:
            return
        rows = self.cache.step(chunks).layers[0].rows
        is_broken = self.random.rand() < 0.2
        places = list(zip(rows.pages.tolist(), rows.places.tolist(), strict=True))
        texts = [
            (request, end)
            for request, chunk in zip(chosen, chunks, strict=True)
            for end in range(chunk.start + 1, chunk.end + 1)
        ]
        for (page, place), (request, end) in zip(places, texts, strict=True):
            assert self.pool.holders(page) == 1, "a page is written that others hold, too"
            if not is_broken or self.random.rand() < 0.5:
                self.written[page][place] = code(tuple(request.tokens[:end]))
        if is_broken:
            self.done["failed"] += 1
            return
        for request, chunk in zip(chosen, chunks, strict=True):
            if chunk.end == len(request.tokens):
                self.done["rejected"] += 1
                start = request.num_computed_tokens
                kept = request.tokens[: start + self.random.randint(len(chunk.tokens) + 1)]
                request.tokens = [*kept, ALPHABET[0]]
            self.cache.commit(request, min(chunk.end, len(request.tokens) - 1))
            assert len(request.pages) <= self.pool.pages_for(len(request.tokens))

    def close(self, request):
        self.requests.remove(request)
        self.cache.close(request)

    def operate(self):
        kinds = {self.open: 3, self.step: 6}
        if self.requests:
            kinds |= {self.reserve: 5, self.close: 1.3}
        weights = np.array(list(kinds.values()))
        kind = list(kinds)[self.random.choice(len(kinds), p=weights / weights.sum())]
        self.done[kind.__name__] += 1
        kind() if kind in (self.open, self.step) else kind(self.one_of(self.requests))

    def check(self):
        self.cache.check_integrity(self.requests)
        size = self.pool.page_size
        for request in self.requests:
            found = [self.written[request.pages[i // size]][i % size] for i in range(request.num_computed_tokens)]
            expected = [code(tuple(request.tokens[: i + 1])) for i in range(request.num_computed_tokens)]
            assert found == expected, "not the text's own keys"
        for node in self.tree.root:
            text = text_of(node)
            assert self.written[node.page] == [code(text[: len(text) - size + i + 1]) for i in range(size)]
        assert self.tree.num_evictable == self.pool.num_pages - self.pool.num_free - len(
            {page for request in self.requests for page in request.pages}
        )


@pytest.mark.parametrize(("num_pages", "page_size", "seed"), [(24, 4, 1), (40, 1, 2), (12, 3, 3), (5, 7, 4)])
def test_10_000_operations(num_pages, page_size, seed):
    """Each pool gets a quarter of the operations."""
    operations = Operations(num_pages, page_size, seed)
    for _ in range(2_500):
        operations.operate()
        operations.check()
    assert min(operations.done.values()) > 40, operations.done
    assert operations.done.keys() >= {"evicted", "found", "failed", "no room"} | (
        {"copied"} if page_size > 1 else set()
    )
    for request in list(operations.requests):
        operations.close(request)
    operations.check()
    assert operations.pool.num_free + operations.tree.evict(num_pages) >= 0
    assert operations.pool.num_free == num_pages, "all that was known can be given up, and nothing is lost"
    operations.pool.check_integrity({})


def test_a_tree_is_as_deep_as_a_text_is_long():
    """40,000 tokens make a tree that is deeper than Python's limit of recursion."""
    pool = PagePool(40_000, 1)
    tree, text = PrefixTree(pool), list(range(40_000))
    pages = pool.allocate(40_000)
    for page in pages:  # as `insert` would, without the time that `release` takes for 40,000 pages at once
        pool.share([page])
        pool.release([page])
    assert tree.insert(text, pages) == pages
    for page in pages:
        pool.release([page])
    tree.check_integrity()
    assert (tree.match(text)[1], tree.num_evictable) == (40_000, 40_000)
    assert tree.evict(39_999) == 39_999
    assert tree.match(text) == ([pages[0]], 1)


@pytest.fixture(scope="module")
def model():
    """Return a model with dense weights in float32, whose logits are never so close that rounding decides."""
    config = ModelConfig.from_hf(untrained_config("qwen3", num_hidden_layers=2, vocab_size=100, eos_token_id=[7, 8]))
    weights = random_weights(expected_shapes(config), seed=5)
    return build_model(config, {name: mx.array(weight) for name, weight in weights.items()})


class Failing:
    """A model that sometimes fails before its layers, after them, or when it computes logits."""

    def __init__(self, model, random):
        self.model, self.config, self.layers, self.random = model, model.config, model.layers, random
        self.failures = 0

    def fail(self):
        if self.random.rand() < 0.05:
            self.failures += 1
            raise RuntimeError("out of order")

    def hidden(self, tokens, cache):
        self.fail()
        hidden = self.model.hidden(tokens, cache)
        self.fail()
        return hidden

    def logits(self, hidden):
        self.fail()
        return self.model.logits(hidden)


class Watch:
    """An observer that notes preempted requests, and how many tokens were computed."""

    def __init__(self):
        self.preempted, self.num_tokens = Counter(), 0

    def on_step(self, engine, batch, touched):
        self.preempted.update(batch.preempted)
        self.num_tokens += batch.num_tokens
        assert batch.chunks, "a step in which nothing is computed"

    def on_abort(self, engine, request):
        """Do nothing: there is nothing to note."""


def some_requests(random, count):
    """Return requests whose prompts begin with one of two texts or a part of it, and continue with few different
    tokens."""
    systems = [[int(token) for token in random.randint(0, 100, 11)] for _ in range(2)]
    samplings = [{}, {"temperature": 1.0}, {"repetition_penalty": 1.2}]
    for number in range(count):
        begin = systems[random.randint(2)][: random.choice([11, 11, 6, 0])]
        prompt = [*begin, *(int(token) for token in random.randint(0, 3, random.randint(1, 8)))]
        params = SamplingParams(int(random.randint(1, 12)), **samplings[number % 3], seed=number)
        yield Request(f"r{number}", prompt, params)


def alone(model, request):
    params = request.params
    return list(generate(model, request.prompt, sampler_of(params), params.max_tokens, model.config.eos_token_ids))


def serve(engine, requests, random, abort=0.0):
    """Add requests while others run, abort some, and step until none is left. Return the finished requests."""
    waiting, ended = list(requests), []
    for _ in range(2_000):
        if waiting and random.rand() < 0.6:
            engine.add(waiting.pop(0))
        if engine.has_work and random.rand() < abort:
            served = list(engine.scheduler)
            engine.abort(served[random.randint(len(served))].id)
            engine.check_integrity()
        if engine.has_work:
            try:
                ended += [request for request in engine.step() if request.finish_reason is not None]
            except RuntimeError:
                engine.check_integrity()
        elif not waiting:
            return ended
    raise AssertionError(f"not over after 2,000 steps: {[request.id for request in engine.scheduler]}")


POOLS = [(7, 4), (26, 1), (2, 13), (4, 7)]  # no request needs more than 26 positions after its last step


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("num_pages", "page_size"), POOLS)
def test_few_pages(model, num_pages, page_size, seed):
    """With prompts in common, preemptions, aborts and failed steps, the other requests get the results that they get
    alone."""
    random = np.random.RandomState(seed)
    cache = prefix_cache(2, PagePool(num_pages, page_size))
    watch, failing = Watch(), Failing(model, random)
    scheduler = preempting(cache, 4, int(random.choice([4, 9, 64])))
    engine = Engine(failing, scheduler, (watch,), is_checked=True)
    requests = [request for request in some_requests(random, 14) if len(request.prompt) < engine.max_length]
    ended = serve(engine, requests, random, abort=0.05)
    assert len(ended) + sum(request.finish_reason == "abort" for request in requests) == len(requests)
    for request in ended:
        expected = alone(model, request)
        assert request.output == expected[: len(request.output)], request.id
        assert request.output == expected or len(request.tokens) == engine.max_length, request.id
    assert failing.failures
    cache.check_integrity([])


@pytest.mark.parametrize(("num_pages", "page_size"), POOLS)
def test_they_are_preempted_and_pages_are_shared(model, num_pages, page_size):
    """Otherwise the earlier tests would prove little."""
    preempted, shared = Counter(), 0
    for seed in range(4):
        random = np.random.RandomState(seed)
        cache = prefix_cache(2, PagePool(num_pages, page_size))
        watch = Watch()
        engine = Engine(model, preempting(cache, 4, 9), (watch,), is_checked=True)
        requests = [request for request in some_requests(random, 14) if len(request.prompt) < engine.max_length]
        serve(engine, requests, random)
        preempted += watch.preempted
        needed = sum(len(request.tokens) - 1 for request in requests)
        shared += needed > watch.num_tokens
    assert preempted
    assert shared or page_size > 10


@pytest.mark.parametrize("drafter", ["n-gram", "model"])
@pytest.mark.parametrize("page_size", [1, 4])
def test_guesses(model, page_size, drafter):
    """Trimmed positions may be in pages that the tree knows. The drafter's own cache finds prefixes, too."""
    random = np.random.RandomState(page_size)
    cache = prefix_cache(2, PagePool(28 // page_size, page_size))
    drafts = prefix_cache(2, PagePool(60 // page_size, page_size))
    guesses = ModelDrafter(model, drafts) if drafter == "model" else NGramDrafter()
    engine = Engine(model, preempting(cache, 4, 9), is_checked=True, decoding=Speculative(guesses, 4))
    requests = [
        Request(f"r{i}", [5] * 6 + [i % 3] * 2 + [i % 5], SamplingParams(int(random.randint(1, 12)))) for i in range(12)
    ]
    assert len(serve(engine, requests, random)) == len(requests)
    for request in requests:
        assert request.output == alone(model, request), request.id
    assert sum(request.num_accepted for request in requests)
    cache.check_integrity([])
    drafts.check_integrity([])


@pytest.mark.parametrize("page_size", [2, 4, 5, 10])
def test_whoever_needs_all_pages_gets_them(model, page_size):
    """The tree knows the request's beginning up to the middle of the last page, and holds each page. The request must
    not wait for ever."""
    cache = prefix_cache(2, PagePool(20 // page_size, page_size))
    engine = Engine(model, preempting(cache, 1, 3), is_checked=True)
    text = [int(token) for token in np.random.RandomState(1).randint(20, 90, 20)]
    params = SamplingParams(30, ignore_eos=True)
    for length in (19, 18, 17, 19, 3, 18):
        request = Request("a", text[:length], params)
        engine.add(request)
        for _ in range(40):
            engine.step()
        assert request.finish_reason == "length"
        assert len(request.tokens) == 20


def test_a_prompt_that_its_owner_changes(model):
    """The tree knows the pages that were computed from the prompt as it was then."""
    cache = prefix_cache(2, PagePool(20, 4))
    engine = Engine(model, preempting(cache, 4, 64), is_checked=True)
    prompt = [11, 12, 13, 14, 15, 16, 17, 18, 19]
    first = Request("a", prompt, SamplingParams(4))
    engine.add(first)
    engine.step()
    prompt[:4] = [21, 22, 23, 24]
    for _ in range(4):
        engine.step()
    second = Request("b", prompt, SamplingParams(4))
    engine.add(second)
    for _ in range(5):
        engine.step()
    assert first.output == alone(model, first)
    assert second.output == alone(model, second)
    assert cache.prefixes.tree.match([21, 22, 23, 24, 15, 16, 17, 18])[1] == 8


@pytest.mark.parametrize("token_budget", [6, 64])
def test_found_in_the_next_step(model, token_budget):
    """A request that comes while a prompt is being computed finds all positions computed before its own first step."""
    cache = prefix_cache(2, PagePool(20, 4))
    watch = Watch()
    engine = Engine(model, preempting(cache, 4, token_budget), (watch,), is_checked=True)
    prompt = [11, 12, 13, 14, 15, 16, 17, 18, 19]
    engine.add(Request("a", prompt, SamplingParams(3)))
    while not engine.scheduler.find("a").output:
        engine.step()
    engine.add(Request("b", [*prompt, 21], SamplingParams(1)))
    before = watch.num_tokens
    engine.step()
    assert watch.num_tokens - before == 1 + 2, "a token of the first, two of the second"
