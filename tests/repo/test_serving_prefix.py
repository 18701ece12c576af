"""The prefix cache over a long time: thousands of operations by chance, engines that run out of pages, fail and guess.

Whatever is shared, copied and forgotten: a request reads the keys and values of its own tokens, and gets what it gets
alone.
"""

import zlib
from collections import Counter

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm_models.untrained import random_weights, untrained_config
from tiny_llm_ref.config import ModelConfig
from tiny_llm_ref.generate import generate
from tiny_llm_ref.models import build_model
from tiny_llm_ref.serving.batch import Chunk
from tiny_llm_ref.serving.drafters import ModelDrafter, NGramDrafter
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.preempting_scheduler import PreemptingScheduler
from tiny_llm_ref.serving.prefix_cache import PrefixPagedKVCache
from tiny_llm_ref.serving.prefix_tree import PrefixTree, common
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.speculative import SpeculativeEngine
from tiny_llm_ref.weights import expected_shapes

MODULUS = 2**61 - 1  # ints that differ by it have the same hash, and so have tuples of them
ALPHABET = (1, 2, 1 + MODULUS, 2 + MODULUS)


def code(text):
    """A number that tells which text it is."""
    return zlib.crc32(repr(text).encode()) % 1_000_000


def text_of(node):
    text = ()
    while node.parent is not None:
        text, node = node.tokens + text, node.parent
    return text


class Operations:
    """A cache, what its requests are, and in which order the pages of the tree were used.

    Of keys there is one number for each position, which a step writes into a list: what a page holds is compared with
    the text that it should hold, after each operation.
    """

    def __init__(self, num_pages, page_size, seed):
        self.random = np.random.RandomState(seed)
        self.pool = PagePool(num_pages, page_size)
        self.cache = PrefixPagedKVCache(0, self.pool)
        self.cache.layers = [self]
        self.written = [[0] * page_size for _ in range(num_pages)]
        self.tokens, self.computed, self.wanted = {}, {}, {}  # by request; `wanted`: what its prompt still needs
        self.done = Counter()
        self.number = 0

    def copy_page(self, source, target):
        """As a layer does."""
        assert self.pool.holders(target) == 1, "a page is written that others hold, too"
        self.written[target] = list(self.written[source])
        self.done["copied"] += 1

    def one_of(self, values):
        return list(values)[self.random.randint(len(values))]

    def some_tokens(self, most):
        size = len(ALPHABET) if self.random.rand() < 0.2 else 2
        return [ALPHABET[i] for i in self.random.randint(0, size, self.random.randint(1, most))]

    def open(self):
        self.number += 1
        id, tokens = f"r{self.number}", self.some_tokens(6 * self.pool.page_size)
        if len(tokens) > self.cache.capacity or not self.cache.can_open(tokens):
            assert self.tokens or len(tokens) > self.cache.capacity, "nobody is there, and there is no room"
            self.done["no room"] += 1
            return
        best = max((common(text_of(node), tokens[:-1]) for node in self.cache.tree.root), default=0)
        self.cache.open(id, tokens)
        length = self.cache.length(id)
        assert length in (best, best // self.pool.page_size * self.pool.page_size)
        self.tokens[id], self.computed[id], self.wanted[id] = tokens[:length], length, tokens[length:]
        assert self.cache.can_extend(id, len(tokens) - length), "there was room for all its tokens"
        self.done["found"] += length
        self.extend(id)

    def extend(self, id):
        """By a part of its prompt, or by new tokens. The caller may change the list afterwards."""
        tokens = self.wanted[id] or self.some_tokens(4)
        tokens = tokens[: self.random.randint(len(tokens) + 1)]
        if not self.cache.can_extend(id, len(tokens)):
            self.done["no room"] += 1
            return
        gone = self.next_to_go(self.cache.missing(id, len(tokens)) - self.pool.num_free)
        before, given = {text_of(node) for node in self.cache.tree.root}, list(tokens)
        self.cache.extend(id, given)
        given[:] = [0] * len(given)
        self.tokens[id] = self.tokens[id] + tokens
        self.wanted[id] = self.wanted[id][len(tokens) :]
        assert before - {text_of(node) for node in self.cache.tree.root} == gone
        self.done["evicted"] += len(gone)

    def next_to_go(self, count):
        """One after the other: of all pages without a child that only the tree holds, the least recently used."""
        left = {text_of(node): node for node in self.cache.tree.root}
        gone = set()
        for _ in range(count):
            parents = {text[: -self.pool.page_size] for text in left}
            free = [text for text in left if text not in parents and self.pool.holders(left[text].page) == 1]
            oldest = min(free, key=lambda text: left[text].last_used)
            gone.add(oldest)
            del left[oldest]
        return gone

    def step(self):
        """What was not computed yet is computed, for some of the requests; or the model fails, and it is undone."""
        ids = [id for id in self.tokens if self.random.rand() < 0.7 and len(self.tokens[id]) > self.computed[id]]
        if not ids:
            return
        chunks = [
            Chunk(Request(id, self.tokens[id]), self.tokens[id][self.computed[id] :], self.computed[id], 1)
            for id in ids
        ]
        rows = self.cache.step(chunks).layers[0].place
        is_broken = self.random.rand() < 0.2
        places = list(zip(rows.pages.tolist(), rows.slots.tolist(), strict=True))
        texts = [(chunk.request.id, end) for chunk in chunks for end in range(chunk.start + 1, chunk.end + 1)]
        for (page, slot), (id, end) in zip(places, texts, strict=True):
            assert self.pool.holders(page) == 1, "a page is written that others hold, too"
            if not is_broken or self.random.rand() < 0.5:
                self.written[page][slot] = code(tuple(self.tokens[id][:end]))
        for chunk in chunks:
            self.computed[chunk.request.id] = chunk.end
        if is_broken:
            self.done["failed"] += 1
            for chunk in chunks:
                self.trim(chunk.request.id, len(chunk.tokens))

    def trim(self, id, count=None):
        count = int(self.random.randint(len(self.tokens[id]) + 1)) if count is None else count
        self.cache.trim(id, count)
        self.tokens[id] = self.tokens[id][: len(self.tokens[id]) - count]
        self.computed[id] = min(self.computed[id], len(self.tokens[id]))
        self.wanted[id] = []

    def close(self, id):
        self.cache.close(id)
        del self.tokens[id], self.computed[id], self.wanted[id]

    def operate(self):
        kinds = {self.open: 3, self.step: 5}
        if self.tokens:
            kinds |= {self.extend: 6, self.trim: 1, self.close: 1.5}
        weights = np.array(list(kinds.values()))
        kind = list(kinds)[self.random.choice(len(kinds), p=weights / weights.sum())]
        self.done[kind.__name__] += 1
        kind() if kind in (self.open, self.step) else kind(self.one_of(self.tokens))

    def check(self):
        self.cache.check_integrity({id: len(tokens) for id, tokens in self.tokens.items()})
        size = self.pool.page_size
        for id, length in self.computed.items():
            table = self.cache.tables[id]
            found = [self.written[table[i // size]][i % size] for i in range(length)]
            assert found == [code(tuple(self.tokens[id][: i + 1])) for i in range(length)], "not the text's own keys"
        for node in self.cache.tree.root:
            text = text_of(node)
            assert self.written[node.page] == [code(text[: len(text) - size + i + 1]) for i in range(size)]
        assert self.cache.tree.num_evictable == self.pool.num_pages - self.pool.num_free - len(
            {page for table in self.cache.tables.values() for page in table}
        )


@pytest.mark.parametrize(("num_pages", "page_size", "seed"), [(24, 4, 1), (40, 1, 2), (12, 3, 3), (5, 7, 4)])
def test_4_000_operations(num_pages, page_size, seed):
    operations = Operations(num_pages, page_size, seed)
    for _ in range(4_000):
        operations.operate()
        operations.check()
    assert min(operations.done.values()) > 40, operations.done
    assert operations.done.keys() >= {"evicted", "found", "failed", "no room"} | (
        {"copied"} if page_size > 1 else set()
    )
    for id in list(operations.tokens):
        operations.close(id)
    operations.check()
    assert operations.pool.num_free + operations.cache.tree.evict(num_pages) >= 0
    assert operations.pool.num_free == num_pages, "all that was known can be given up, and nothing is lost"
    operations.pool.check_integrity({})


def test_a_tree_is_as_deep_as_a_text_is_long():
    """40,000 tokens: deeper than Python's calls within each other."""
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
    """Dense weights in float32; no two logits are so close that rounding decides."""
    config = ModelConfig.from_hf(untrained_config("qwen3", num_hidden_layers=2, vocab_size=100, eos_token_id=[7, 8]))
    weights = random_weights(expected_shapes(config), seed=5)
    return build_model(config, {name: mx.array(weight) for name, weight in weights.items()})


class Failing:
    """A model that fails now and then, before its layers, behind them, or when its scores are computed."""

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
    """An observer that notes who was preempted, and how many tokens were computed."""

    def __init__(self):
        self.preempted, self.num_tokens = Counter(), 0

    def on_step(self, engine, batch, touched):
        self.preempted.update(batch.preempted)
        self.num_tokens += batch.num_tokens
        assert batch.chunks, "a step in which nothing is computed"

    def on_abort(self, engine, request):
        """Nothing to note."""


def some_requests(random, count):
    """Prompts that begin with one of two texts, or with a part of one, and go on with few different tokens."""
    systems = [[int(token) for token in random.randint(0, 100, 11)] for _ in range(2)]
    samplings = [{}, {"temperature": 1.0}, {"repetition_penalty": 1.2}]
    for number in range(count):
        begin = systems[random.randint(2)][: random.choice([11, 11, 6, 0])]
        prompt = [*begin, *(int(token) for token in random.randint(0, 3, random.randint(1, 8)))]
        params = SamplingParams(int(random.randint(1, 12)), **samplings[number % 3], seed=number)
        yield Request(f"r{number}", prompt, params)


def alone(model, request):
    params = request.params
    return list(generate(model, request.prompt, params.sampler(), params.max_tokens, model.config.eos_token_ids))


def serve(engine, requests, random, abort=0.0):
    """Add requests while others run, abort some, step until nothing is left. Returns those that came to their end."""
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
    """Prompts in common, preemptions, aborts, steps that fail: whoever is left gets what it gets alone."""
    random = np.random.RandomState(seed)
    cache = PrefixPagedKVCache(2, PagePool(num_pages, page_size))
    watch, failing = Watch(), Failing(model, random)
    scheduler = PreemptingScheduler(cache, 4, int(random.choice([4, 9, 64])))
    engine = Engine(failing, scheduler, (watch,), is_checked=True)
    requests = [request for request in some_requests(random, 14) if len(request.prompt) < engine.max_length]
    ended = serve(engine, requests, random, abort=0.05)
    assert len(ended) + sum(request.finish_reason == "abort" for request in requests) == len(requests)
    for request in ended:
        expected = alone(model, request)
        assert request.output == expected[: len(request.output)], request.id
        assert request.output == expected or len(request.tokens) == engine.max_length, request.id
    assert failing.failures
    cache.check_integrity({})


@pytest.mark.parametrize(("num_pages", "page_size"), POOLS)
def test_they_are_preempted_and_pages_are_shared(model, num_pages, page_size):
    """The tests above would prove little if it were otherwise."""
    preempted, shared = Counter(), 0
    for seed in range(4):
        random = np.random.RandomState(seed)
        cache = PrefixPagedKVCache(2, PagePool(num_pages, page_size))
        watch = Watch()
        engine = Engine(model, PreemptingScheduler(cache, 4, 9), (watch,), is_checked=True)
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
    """What is trimmed may be of pages that are known by then; the drafter's own cache finds prefixes, too."""
    random = np.random.RandomState(page_size)
    cache = PrefixPagedKVCache(2, PagePool(28 // page_size, page_size))
    drafts = PrefixPagedKVCache(2, PagePool(60 // page_size, page_size))
    guesses = ModelDrafter(model, drafts) if drafter == "model" else NGramDrafter()
    engine = SpeculativeEngine(model, PreemptingScheduler(cache, 4, 9), guesses, 4, is_checked=True)
    requests = [
        Request(f"r{i}", [5] * 6 + [i % 3] * 2 + [i % 5], SamplingParams(int(random.randint(1, 12)))) for i in range(12)
    ]
    assert len(serve(engine, requests, random)) == len(requests)
    for request in requests:
        assert request.output == alone(model, request), request.id
    assert sum(request.num_accepted for request in requests)
    cache.check_integrity({})
    drafts.check_integrity({})


@pytest.mark.parametrize("page_size", [2, 4, 5, 10])
def test_whoever_needs_all_pages_gets_them(model, page_size):
    """Its beginning is known to the middle of its last page, each page is in the tree: it does not wait for ever."""
    cache = PrefixPagedKVCache(2, PagePool(20 // page_size, page_size))
    engine = Engine(model, PreemptingScheduler(cache, 1, 3), is_checked=True)
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
    """What is known was computed from what the list was then."""
    cache = PrefixPagedKVCache(2, PagePool(20, 4))
    engine = Engine(model, PreemptingScheduler(cache, 4, 64), is_checked=True)
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
    assert cache.tree.match([21, 22, 23, 24, 15, 16, 17, 18])[1] == 8


@pytest.mark.parametrize("token_budget", [6, 64])
def test_found_in_the_next_step(model, token_budget):
    """Whoever comes while a prompt is computed finds all that was computed before its own step."""
    cache = PrefixPagedKVCache(2, PagePool(20, 4))
    watch = Watch()
    engine = Engine(model, PreemptingScheduler(cache, 4, token_budget), (watch,), is_checked=True)
    prompt = [11, 12, 13, 14, 15, 16, 17, 18, 19]
    engine.add(Request("a", prompt, SamplingParams(3)))
    while not engine.scheduler.find("a").output:
        engine.step()
    engine.add(Request("b", [*prompt, 21], SamplingParams(1)))
    before = watch.num_tokens
    engine.step()
    assert watch.num_tokens - before == 1 + 2, "a token of the first, two of the second"
