"""Pages over a long time: 10,000 random operations on a pool and a cache, and engines that run out of pages."""

from collections import Counter

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models import bundled
from tiny_llm_models.untrained import untrained_config, write_untrained
from tiny_llm_ref.generate import generate
from tiny_llm_ref.models import load_model
from tiny_llm_ref.serving.distributions import sampler_of
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import PagedKVCache
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget


class Held:
    """A request as a cache sees it."""

    def __init__(self, length):
        self.tokens, self.pages, self.num_computed_tokens = [1] * length, [], 0


class Pages:
    """A pool with a cache, another holder of the requests' pages, and the pages that both must hold by now."""

    def __init__(self, num_pages, page_size, seed):
        self.random = np.random.RandomState(seed)
        self.pool = PagePool(num_pages, page_size)
        self.cache = PagedKVCache(1, self.pool)
        self.requests = []
        self.elsewhere = []  # pages, one entry for each time that they are held
        self.done = Counter()

    def one_of(self, values):
        return list(values)[self.random.randint(len(values))]

    def pages_of(self, length):
        return len({position // self.pool.page_size for position in range(length)})

    def open(self):
        request = Held(int(self.random.randint(1, 4 * self.pool.page_size)))
        needed, free = self.pages_of(len(request.tokens)), self.pool.num_free
        assert self.cache.open(request) == (needed <= free)
        assert len(request.pages) == (needed if needed <= free else 0)
        if needed <= free:
            self.requests.append(request)

    def reserve(self, request):
        """Add tokens, guesses among them, and reserve room for them. Sometimes the step fails, and the tokens are
        removed."""
        before, held = len(request.tokens), self.held()
        request.tokens += [1] * int(self.random.randint(1, 3 * self.pool.page_size))
        missing = self.pages_of(len(request.tokens)) - len(request.pages)
        table, free = list(request.pages), self.pool.num_free
        has_room = self.cache.reserve(request, len(request.tokens) - request.num_computed_tokens)
        assert has_room == (missing <= free)
        new = request.pages[len(table) :]
        assert request.pages[: len(table)] == table
        assert len(new) == (max(missing, 0) if has_room else 0)
        assert not set(new) & held.keys(), "a page was handed out that is held"
        if not has_room or self.random.rand() < 0.2:
            del request.tokens[before:]

    def commit(self, request):
        """Compute some of the pending tokens. Remove some tokens, as if they were rejected guesses."""
        pending = len(request.tokens) - request.num_computed_tokens
        right = int(self.random.randint(pending + 1))
        computed = request.num_computed_tokens + int(self.random.randint(right + 1))
        del request.tokens[request.num_computed_tokens + max(right, 1) :]
        if self.pages_of(computed) > len(request.pages):
            return
        table = list(request.pages)
        self.cache.commit(request, computed)
        assert request.pages == table[: self.pages_of(len(request.tokens))]
        self.done["surplus"] += len(request.pages) < len(table)

    def close(self, request):
        self.requests.remove(request)
        self.cache.close(request)
        assert (request.pages, request.num_computed_tokens) == ([], 0)

    def share(self, request):
        """Share the first pages of a request with another holder, as a prefix cache does."""
        pages = request.pages[: self.random.randint(len(request.pages) + 1)]
        self.pool.share(pages)
        self.elsewhere += pages

    def let_go(self):
        """Release some of the pages that the other holder has, some of them several times."""
        kept = self.random.rand(len(self.elsewhere)) < 0.5
        self.pool.release([page for page, is_kept in zip(self.elsewhere, kept, strict=True) if not is_kept])
        self.elsewhere = [page for page, is_kept in zip(self.elsewhere, kept, strict=True) if is_kept]

    def release_too_often(self):
        """Release free pages after held pages, or a page once more than it is held."""
        held = self.held()
        wrong = [page for page in range(self.pool.num_pages) for _ in range(held[page] + 1)]
        page = self.one_of(range(self.pool.num_pages))
        for pages in (wrong, [page] * (held[page] + 1)):
            with pytest.raises(ValueError, match="expected one that is held"):
                self.pool.release(pages)
        free = [page for page in range(self.pool.num_pages) if not held[page]]
        if free:
            with pytest.raises(ValueError, match="expected one that is held"):
                self.pool.share([*held, self.one_of(free)])

    def held(self):
        return Counter(self.elsewhere) + Counter(page for request in self.requests for page in request.pages)

    def step(self):
        kinds = {self.open: 2, self.let_go: 2, self.release_too_often: 1}
        if self.requests:
            kinds |= {self.reserve: 6, self.commit: 6, self.close: 1.6, self.share: 2}
        weights = np.array(list(kinds.values()))
        kind = list(kinds)[self.random.choice(len(kinds), p=weights / weights.sum())]
        self.done[kind.__name__] += 1
        if kind in (self.open, self.let_go, self.release_too_often):
            kind()
        else:
            kind(self.one_of(self.requests))

    def check(self):
        """Check that no page is freed twice, and none is lost."""
        held = self.held()
        self.pool.check_integrity(held)
        assert self.pool.num_free + len(held) == self.pool.num_pages
        for request in self.requests:
            assert self.pages_of(request.num_computed_tokens) <= len(request.pages)
        own = [page for request in self.requests for page in request.pages]
        assert len(set(own)) == len(own), "two requests have one page"


@pytest.mark.parametrize(("num_pages", "page_size", "seed"), [(40, 4, 1), (25, 1, 2)])
def test_10_000_operations(num_pages, page_size, seed):
    pages = Pages(num_pages, page_size, seed)
    fullest = 0
    for _ in range(10_000):
        pages.step()
        pages.check()
        fullest = max(fullest, num_pages - pages.pool.num_free)
    assert fullest == num_pages, "the pool has to run full, or little was tried"
    assert min(pages.done.values()) > 300, pages.done
    for request in list(pages.requests):
        pages.close(request)
    pages.pool.release(pages.elsewhere)
    pages.pool.check_integrity({})
    assert sorted(pages.pool.allocate(num_pages)) == list(range(num_pages))


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    config = untrained_config("qwen3", num_hidden_layers=2)
    write_untrained(path, config, expected_shapes(ModelConfig.from_hf(config)), seed=4)
    return load_model(path)


class Preemptions:
    """An observer that notes preempted requests, and checks that no request overtakes an older one that waits."""

    def __init__(self):
        self.of = Counter()
        self.arrived = {}

    def on_step(self, engine, batch, touched):
        self.of.update(batch.preempted)
        assert batch.chunks, "a step in which nothing is computed"
        order = [self.arrived.setdefault(request.id, len(self.arrived)) for request in engine.scheduler]
        assert order == sorted(order), "an older request gave way to a newer one"

    def on_abort(self, engine, request):
        """Do nothing: there is nothing to note."""


def some_requests(random, count, max_prompt, vocab_size):
    """Return requests with prompts and outputs of different lengths, greedy and drawn."""
    for number in range(count):
        prompt = [int(token) for token in random.randint(0, vocab_size, random.randint(1, max_prompt))]
        settings = [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_k": 9}, {"repetition_penalty": 1.2}]
        params = SamplingParams(int(random.randint(1, 14)), **settings[number % 4], seed=number)
        yield Request(f"r{number}", prompt, params)


def alone(model, request):
    params, sampler = request.params, sampler_of(request.params)
    return list(generate(model, request.prompt, sampler, params.max_tokens, model.config.eos_token_ids))


def serve(engine, requests, random, abort=0.0):
    """Add requests while others run, abort some, and step until none is left. Return the finished requests."""
    waiting, ended, ids = list(requests), [], []
    for _ in range(3_000):
        if waiting and random.rand() < 0.7:
            engine.add(waiting[0])
            ids.append(waiting.pop(0).id)
        if random.rand() < abort:
            id = ids[random.randint(len(ids))] if ids else "nobody"
            abort_one(engine, id)
        if engine.has_work:
            ended += [request for request in engine.step() if request.finish_reason is not None]
        elif not waiting:
            return ended
    raise AssertionError(f"not over after 3,000 steps: {[request.id for request in engine.scheduler]}")


def abort_one(engine, id):
    """Abort a request. Check that its pages are free at once."""
    pool, request = engine.scheduler.cache.pool, engine.scheduler.find(id)
    before, held = pool.num_free, len(request.pages) if request else 0
    engine.abort(id)
    assert pool.num_free == before + held
    assert request is None or request.pages == []
    engine.check_integrity()


def paged_engine(model, num_pages, page_size, token_budget):
    cache = PagedKVCache(len(model.layers), PagePool(num_pages, page_size))
    watch = Preemptions()
    return Engine(
        model, Scheduler(cache, 5, TokenBudget(token_budget), PreemptNewest()), (watch,), is_checked=True
    ), watch


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("num_pages", "page_size"), [(8, 4), (32, 1), (2, 16)])
def test_few_pages(untrained, num_pages, page_size, seed):
    """Each request gets the result that it gets alone, however often it is preempted, and all requests finish."""
    random = np.random.RandomState(seed)
    engine, watch = paged_engine(untrained, num_pages, page_size, int(random.choice([5, 9, 64])))
    requests = list(some_requests(random, 12, 20, 256))
    ended = serve(engine, requests, random)
    assert len(ended) == len(requests)
    for request in requests:
        assert request.output == alone(untrained, request), request.id
    assert watch.of, "nobody was preempted"
    engine.scheduler.cache.check_integrity([])


@pytest.mark.parametrize("seed", range(4))
def test_aborts_in_between(untrained, seed):
    """The other requests get the results that they get alone, and the pages of aborted requests are free at once."""
    random = np.random.RandomState(seed)
    engine, watch = paged_engine(untrained, 9, 4, 16)
    requests = list(some_requests(random, 20, 20, 256))
    ended = serve(engine, requests, random, abort=0.2)
    assert 0 < len(ended) < len(requests)
    for request in ended:
        assert request.output == alone(untrained, request), request.id
    assert watch.of, "nobody was preempted"
    engine.scheduler.cache.check_integrity([])


def test_a_request_that_needs_all_pages(untrained):
    """The request fits exactly, alone. The others are preempted before it ends, and all requests finish."""
    engine, watch = paged_engine(untrained, 6, 4, 8)
    requests = [
        Request("long", [5] * 12, SamplingParams(12, ignore_eos=True)),
        *(Request(f"short {i}", [i] * 7, SamplingParams(9, ignore_eos=True)) for i in range(3)),
    ]
    ended = serve(engine, requests, np.random.RandomState(1))
    assert {request.id: len(request.output) for request in ended}["long"] == 12
    assert watch.of
    for request in requests:
        assert request.output == alone(untrained, request), request.id


def test_a_trained_model():
    """The bundled model generates stories, drawn and greedy, with few pages."""
    model = load_model(bundled("story-draft"), mx.float32)
    random = np.random.RandomState(5)
    engine, watch = paged_engine(model, 12, 4, 16)
    requests = list(some_requests(random, 8, 24, model.config.vocab_size))
    serve(engine, requests, random)
    for request in requests:
        assert request.output == alone(model, request), request.id
    assert watch.of
