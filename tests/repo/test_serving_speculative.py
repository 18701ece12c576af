"""Speculative decoding with many requests: greedy texts, caches, failures."""

import random
from copy import copy
from functools import cache

import mlx.core as mx
import numpy as np
import pytest
from speculating import echo_heads, model_of, speculative

from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import random_weights
from tiny_llm_ref.generate import generate, next_logits
from tiny_llm_ref.kv_cache import KVCache
from tiny_llm_ref.models import build_model
from tiny_llm_ref.serving.batched_cache import BatchedKVCache
from tiny_llm_ref.serving.distributions import sampler_of
from tiny_llm_ref.serving.drafters import Draft, Drafter, ModelDrafter, NGramDrafter
from tiny_llm_ref.serving.head_drafter import HeadDrafter
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import PagedKVCache
from tiny_llm_ref.serving.prefix_cache import PrefixCache
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget
from tiny_llm_ref.serving.speculative import Speculative

LAYERS = 2


@cache
def near(seed, noise):
    """Return a model whose weights differ a little from those of the model with this seed, so its guesses are often
    right."""
    model = model_of(seed, 40, LAYERS)
    config, shapes = model.config, expected_shapes(model.config)
    random_state = np.random.RandomState(5)
    weights = {
        name: mx.array(weight * (1 + noise * random_state.standard_normal(weight.shape)).astype(np.float32))
        for name, weight in random_weights(shapes, seed).items()
    }
    return build_model(config, weights)


def cache_of(kind):
    if kind == "slots":
        return BatchedKVCache(LAYERS, 4, 48)
    pool = PagePool(14 if kind.startswith("few") else 64, 4)
    return PagedKVCache(LAYERS, pool, PrefixCache(pool) if kind.endswith("prefix") else None)


def scheduler_of(cache):
    if isinstance(cache, BatchedKVCache):
        return Scheduler(cache, 4)
    return Scheduler(cache, 4, TokenBudget(12), PreemptNewest())


def requests_of(seed):
    """Return greedy requests that share beginnings, with and without a penalty, each with a stop token of its own."""
    choose = random.Random(seed)
    shared = [choose.randrange(40) for _ in range(9)]
    return [
        Request(
            f"r{i}",
            [*shared[: choose.choice((0, 5, 9))], *(choose.randrange(40) for _ in range(choose.randint(1, 6)))],
            SamplingParams(
                max_tokens=choose.choice((1, 5, 12, 25)),
                repetition_penalty=choose.choice((1.0, 1.3)),
                stop_token_ids=choose.sample(range(40), 1),
            ),
        )
        for i in range(10)
    ]


def alone(model, request):
    params = request.params
    return list(generate(model, request.prompt, sampler_of(params), params.max_tokens, params.stop_token_ids))


def serve(engine, requests, seed, failing=()):
    """Add requests at random, and abort some. Repeat a step that raises one of the errors in `failing`."""
    choose, waiting, failures = random.Random(seed), list(requests), 0
    for _ in range(600):
        if waiting and choose.random() < 0.4:
            engine.add(waiting.pop(0))
        try:
            engine.step()
        except failing:
            failures += 1
            engine.check_integrity()
        there = list(engine.scheduler)
        if there and choose.random() < 0.02:
            engine.abort(choose.choice(there).id)
            engine.check_integrity()
        if not waiting and not engine.has_work:
            return failures
    raise AssertionError("requests are left after 600 steps")


def assert_as_alone(model, requests):
    for request in requests:
        expected = alone(model, request)
        whole = request.finish_reason in ("stop", "length")
        assert request.finish_reason is not None
        assert request.output == (expected if whole else expected[: len(request.output)]), request.id


@pytest.mark.parametrize("where", ["slots", "pages", "few pages", "prefix", "few prefix"])
@pytest.mark.parametrize("drafting", ["n-gram", "echoing heads", "slots", "few pages", "prefix"])
def test_any_traffic(where, drafting):
    """With any caches of both models, greedy requests get the results that they get alone, and nothing is left."""
    seed = len(where + drafting)
    model = copy(model_of(1, 40, LAYERS))  # draft heads change the model's norm
    drafter = drafter_of(drafting, model)
    cache, requests = cache_of(where), requests_of(seed)
    engine = speculative(model, scheduler_of(cache), drafter, 4, is_checked=True)
    serve(engine, requests, seed)
    assert_as_alone(model, requests)
    drafted, accepted = (
        sum(getattr(request, f"num_{what}") for request in requests) for what in ("drafted", "accepted")
    )
    assert 0 < accepted < drafted, "some guesses are right, and some are not"
    cache.check_integrity([])
    if isinstance(drafter, ModelDrafter):
        drafter.cache.check_integrity([])


def drafter_of(name, model):
    if name == "n-gram":
        return NGramDrafter()
    if name == "echoing heads":
        return HeadDrafter(model, echo_heads(model.config.hidden_size))
    return ModelDrafter(near(1, 0.15), cache_of(name))


def test_little_memory_preempts():
    """Otherwise the previous test would test no preemption."""

    class Preempted:
        names = ()

        def on_step(self, engine, batch, touched):
            self.names += tuple(batch.preempted)

        def on_abort(self, engine, request): ...

    seen = Preempted()
    model, requests = model_of(1, 40, LAYERS), requests_of(0)
    drafter = ModelDrafter(near(1, 0.15), cache_of("slots"))
    serve(speculative(model, scheduler_of(cache_of("few pages")), drafter, 4, [seen]), requests, 0)
    assert seen.names


def test_a_known_prefix_holds_what_its_tokens_alone_leave_there():
    """Rejected guesses were in the pages as well, but no later request finds them."""
    model, cache = model_of(1, 40, LAYERS), cache_of("prefix")
    drafter = ModelDrafter(near(1, 0.15), cache_of("slots"))
    engine = speculative(model, scheduler_of(cache), drafter, 4, is_checked=True)
    serve(engine, requests_of(2), 2)
    nodes = list(cache.prefixes.tree.root)
    assert len(nodes) > 10
    for node in nodes:
        text, above = list(node.tokens), node.parent
        while above is not cache.prefixes.tree.root:
            text, above = [*above.tokens, *text], above.parent
        plain = KVCache(LAYERS)
        mx.eval(next_logits(model, mx.array([text]), plain))
        for layer, expected in zip(cache.layers, plain.layers, strict=True):
            for stored, numbers in ((layer.keys, expected.keys), (layer.values, expected.values)):
                page = numbers[0, :, len(text) - 4 : len(text)]
                assert mx.allclose(stored[node.page], page, rtol=1e-3, atol=1e-4).item()


# ------------------------------------------------------------------------------------------------- failures


class Failing:
    """A model that fails in some passes, before it has stored anything, or after it has stored everything."""

    def __init__(self, model, every):
        self.model, self.config, self.layers, self.every = model, model.config, model.layers, every
        self.passes = 0

    def hidden(self, tokens, cache):
        self.passes += 1
        if self.passes % self.every == 0:
            raise MemoryError("this pass")
        hidden = self.model.hidden(tokens, cache)
        if self.passes % self.every == 1:
            raise MemoryError("after this pass")
        return hidden

    def logits(self, hidden):
        return self.model.logits(hidden)


@pytest.mark.parametrize("where", ["slots", "few pages", "few prefix"])
@pytest.mark.parametrize("who", ["model", "drafter", "both"])
def test_failures_change_nothing(where, who):
    """A step in which a model fails is repeated, and each request gets the result that it gets alone."""
    model, small = model_of(1, 40, LAYERS), near(1, 0.15)
    drafter = ModelDrafter(
        Failing(small, 7) if who != "model" else small, cache_of("slots" if where == "slots" else "pages")
    )
    cache, requests = cache_of(where), requests_of(3)
    target = Failing(model, 5) if who != "drafter" else model
    engine = speculative(target, scheduler_of(cache), drafter, 3, is_checked=True)
    failures = serve(engine, requests, 3, failing=MemoryError)
    assert failures > 3
    assert_as_alone(model, requests)
    cache.check_integrity([])
    drafter.cache.check_integrity([])


def test_a_drafter_that_failed_guesses_well_again():
    """The drafter does not count what it planned to store as stored. With the same model, all its guesses are right."""
    model = model_of(1, 40, LAYERS)
    drafter = ModelDrafter(Failing(model, 7), cache_of("slots"))
    request = Request("a", [1, 2, 3], SamplingParams(max_tokens=30))
    engine = speculative(model, scheduler_of(cache_of("slots")), drafter, 3, is_checked=True)
    engine.add(request)
    failures = 0
    while engine.has_work:
        try:
            engine.step()
        except MemoryError:
            failures += 1
            assert request.finish_reason is None
        assert failures < 100
    assert failures > 3
    assert request.num_accepted == request.num_drafted > 8


@pytest.mark.parametrize("num_pages", [1, 3, 6, 9])
def test_a_drafter_with_little_memory_only_guesses_less(num_pages):
    model, requests = model_of(1, 40, LAYERS), requests_of(4)
    drafter = ModelDrafter(near(1, 0.15), PagedKVCache(LAYERS, PagePool(num_pages, 4)))
    engine = speculative(model, scheduler_of(cache_of("pages")), drafter, 4, is_checked=True)
    serve(engine, requests, 4)
    assert_as_alone(model, requests)
    drafter.cache.check_integrity([])


def test_a_drafter_with_a_shorter_context_only_guesses_less():
    model = model_of(1, 40, LAYERS)
    drafter = ModelDrafter(model_of(1, 40, LAYERS, context=12), cache_of("slots"))
    request = Request("a", [1, 2, 3], SamplingParams(max_tokens=30))
    engine = speculative(model, scheduler_of(cache_of("slots")), drafter, 3, is_checked=True)
    engine.add(request)
    for _ in engine.run():
        pass
    assert_as_alone(model, [request])
    assert 4 < request.num_drafted < 12


def test_one_guess_at_least():
    with pytest.raises(ValueError, match=r"num_drafts: expected 1 or more, got 0"):
        speculative(model_of(1), scheduler_of(cache_of("slots")), NGramDrafter(), num_drafts=0)


class NewLists(PagedKVCache):
    """A cache whose `reserve` puts a request's pages into a new list, as a learner's cache may."""

    def reserve(self, stored, count):
        stored.pages = list(stored.pages)
        return super().reserve(stored, count)


class Sevens(Drafter):
    """A drafter that always guesses 7."""

    def propose(self, wanted):
        return [Draft([7] * count) for _, count in wanted]


def test_a_chunk_has_the_pages_of_its_guesses():
    """This holds for any list of pages, although the chunk was made before the guesses."""
    cache = NewLists(1, PagePool(8, page_size=2))
    scheduler = Scheduler(cache)
    scheduler.add(Request("a", [1, 2, 3], SamplingParams(max_tokens=20)))
    (chunk,) = Speculative(Sevens(), num_drafts=5).draft(scheduler.schedule(), cache, 16).chunks
    assert chunk.end == 8
    assert len(chunk.pages) == 4
