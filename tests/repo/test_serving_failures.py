"""Exceptions anywhere in a step: the next step goes on, requests get their usual results, and no page is lost.

No code undoes a failed step. Positions that the step reserved stay reserved, positions that it wrote are written again,
and nothing was committed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import random_weights, untrained_config
from tiny_llm_ref.generate import generate
from tiny_llm_ref.models import build_model
from tiny_llm_ref.serving.batch_sampler import BatchSampler
from tiny_llm_ref.serving.batched_cache import BatchedKVCache
from tiny_llm_ref.serving.decoding import Decoding
from tiny_llm_ref.serving.distributions import sampler_of
from tiny_llm_ref.serving.drafters import ModelDrafter, NGramDrafter
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import PagedKVCache
from tiny_llm_ref.serving.prefix_cache import PrefixCache
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget
from tiny_llm_ref.serving.speculative import Speculative

SERVING = Path(__file__).parents[2] / "src/tiny_llm_ref/serving"
RUNS = 200


class BrokenError(Exception):
    """The exception that the tests inject."""


class Faults:
    """A counter of the places that a run passes, which raises an exception at one of them."""

    def __init__(self) -> None:
        self.at = self.passed = self.raised = 0

    def arm(self, after: int) -> None:
        """Raise an exception after `after` more places."""
        self.at = self.passed + after

    def here(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            self.raised += 1
            raise BrokenError


class Faulty:
    """A model that can fail before, between and after its layers, and before its logits."""

    def __init__(self, model: Any, faults: Faults):
        self.model, self.faults = model, faults
        self.config, self.layers = model.config, model.layers

    def hidden(self, tokens: mx.array, cache: Any) -> mx.array:
        self.faults.here()
        hidden = self.model.hidden(tokens, FaultyCache(cache, self.faults))
        mx.eval(hidden)  # keys and values are in the cache
        self.faults.here()
        return hidden

    def logits(self, hidden: mx.array) -> mx.array:
        self.faults.here()
        logits = self.model.logits(hidden)
        self.faults.here()
        return logits


class FaultyCache:
    """A step's cache whose layers after the first can fail."""

    def __init__(self, cache: Any, faults: Faults):
        self.cache, self.faults = cache, faults

    @property
    def layers(self) -> Any:
        for layer in self.cache.layers:
            yield layer
            self.faults.here()

    def advance(self, length: int) -> None:
        self.cache.advance(length)


class FaultyDecoding(Decoding):
    """A decoding that can fail before it chooses tokens, and after it has chosen all of them."""

    def __init__(self, decoding: Decoding, faults: Faults):
        self.decoding, self.faults = decoding, faults
        self.draft, self.forget = decoding.draft, decoding.forget

    def choose(self, chunks: Any, logits: mx.array) -> Any:
        self.faults.here()
        return self.decoding.choose(chunks, logits)


@cache
def model(seed: int = 5, noise: float = 0.0) -> Any:
    config = ModelConfig.from_hf(untrained_config(num_hidden_layers=2, vocab_size=50, eos_token_id=[7]))
    generator = random.Random(1)
    weights = {
        name: mx.array(weight * (1 + noise * generator.uniform(-1, 1)))
        for name, weight in random_weights(expected_shapes(config), seed).items()
    }
    return build_model(config, {name: weight.astype(mx.float32) for name, weight in weights.items()})


@cache
def alone(prompt: tuple[int, ...], params: SamplingParams) -> list[int]:
    ends = model().config.eos_token_ids
    return list(generate(model(), prompt, sampler_of(params), params.max_tokens, ends))


def pages(num_pages: int, has_prefixes: bool = False) -> PagedKVCache:
    pool = PagePool(num_pages, 4)
    return PagedKVCache(2, pool, PrefixCache(pool) if has_prefixes else None)


def drafter(faults: Faults) -> ModelDrafter:
    return ModelDrafter(Faulty(model(noise=0.1), faults), pages(40))


SYSTEMS: dict[str, Callable[[Faults], tuple[Any, Decoding]]] = {
    "slots": lambda faults: (BatchedKVCache(2, 4, 40), Decoding()),
    "few pages": lambda faults: (pages(9), BatchSampler()),
    "prefixes": lambda faults: (pages(12, has_prefixes=True), BatchSampler()),
    "prefixes, n-grams": lambda faults: (pages(12, has_prefixes=True), Speculative(NGramDrafter(), 3, BatchSampler())),
    "few pages, a smaller model": lambda faults: (pages(10), Speculative(drafter(faults), 3)),
}


def requests_of(seed: int, is_greedy: bool) -> list[Request]:
    choose = random.Random(seed)
    shared = [choose.randrange(50) for _ in range(9)]
    return [
        Request(
            f"r{i}",
            (*shared[: choose.choice((0, 5, 9))], *(choose.randrange(50) for _ in range(choose.randint(1, 5)))),
            SamplingParams(
                max_tokens=choose.choice((1, 4, 9, 14)),
                temperature=0.0 if is_greedy else choose.choice((0.0, 0.9)),
                repetition_penalty=choose.choice((1.0, 1.3)),
                seed=seed + i,
            ),
        )
        for i in range(6)
    ]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("part", range(4))
def test_exceptions_anywhere(system: str, part: int) -> None:
    """Each step fails at one place after another, until it succeeds: nothing is lost, doubled or leaked.

    Drawn tokens stay the same as well, unless a drafter has drawn for a step that failed later.
    """
    raised = 0
    for run in range(part, RUNS // len(SYSTEMS), 4):
        faults, choose = Faults(), random.Random(run)
        cache, decoding = SYSTEMS[system](faults)
        scheduler = Scheduler(cache, 4, TokenBudget(7), PreemptNewest() if isinstance(cache, PagedKVCache) else None)
        engine = Engine(Faulty(model(), faults), scheduler, is_checked=True, decoding=FaultyDecoding(decoding, faults))
        requests = requests_of(run, is_greedy=isinstance(decoding, Speculative))
        waiting = list(requests)
        for step in range(2_000):
            if waiting and choose.random() < 0.5:
                engine.add(waiting.pop(0))
            if not engine.has_work and not waiting:
                break
            if step % 2:  # every second step fails somewhere
                faults.arm(choose.randint(1, 8))
            before = [(list(request.output), request.num_computed_tokens) for request in scheduler.running]
            running = list(scheduler.running)
            try:
                engine.step()
            except BrokenError:
                after = {id(request): (request.output, request.num_computed_tokens) for request in running}
                for request, was in zip(running, before, strict=True):
                    assert request not in scheduler.running or after[id(request)] == was
                engine.check_integrity()
            if choose.random() < 0.03 and list(scheduler):
                engine.abort(choose.choice(list(scheduler)).id)
                engine.check_integrity()
        assert not engine.has_work
        raised += faults.raised
        for request in requests:
            expected = alone(request.prompt, request.params)
            whole = request.finish_reason != "abort"
            assert request.output == (expected if whole else expected[: len(request.output)]), (run, request.id)
        cache.check_integrity([])
        if isinstance(cache, PagedKVCache):
            cache.prefixes.evict(cache.pool.num_pages)
            assert cache.pool.num_free == cache.pool.num_pages
        if isinstance(decoding, Speculative) and isinstance(decoding.drafter, ModelDrafter):
            assert not decoding.drafter.copies
            decoding.drafter.cache.check_integrity([])
    assert raised > 10 * (RUNS // len(SYSTEMS) // 4), "almost every second step has failed"


HANDLER = re.compile(r"^ *except\b(.*):", re.MULTILINE)
PLANNING = ("batch", "batched_cache", "cache", "drafters", "paged_cache", "prefix_cache", "prefix_tree", "scheduler")


def test_no_code_takes_anything_back() -> None:
    """The state after a failed step needs no handler. The engine has one handler, for exceptions of a single
    request."""
    handlers = {name: HANDLER.findall((SERVING / f"{name}.py").read_text(encoding="utf-8")) for name in PLANNING}
    assert not any(handlers.values()), handlers
    assert HANDLER.findall((SERVING / "engine.py").read_text(encoding="utf-8")) == [" Exception as error"]
