"""Speculative decoding over many samples and much traffic: distributions, caches, failures."""

import math
import random
from collections import Counter
from functools import cache

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm_given.config import ModelConfig
from tiny_llm_given.weights import expected_shapes
from tiny_llm_models.untrained import random_weights, untrained_config
from tiny_llm_ref.generate import generate, next_logits
from tiny_llm_ref.kv_cache import KVCache
from tiny_llm_ref.models import build_model
from tiny_llm_ref.sampler import make_sampler
from tiny_llm_ref.serving.batched_cache import BatchedKVCache
from tiny_llm_ref.serving.distributions import draw, probabilities, sampler_of
from tiny_llm_ref.serving.drafters import Draft, ModelDrafter, NGramDrafter
from tiny_llm_ref.serving.engine import Engine
from tiny_llm_ref.serving.page_pool import PagePool
from tiny_llm_ref.serving.paged_cache import PagedKVCache
from tiny_llm_ref.serving.prefix_cache import PrefixCache
from tiny_llm_ref.serving.request import Request, SamplingParams
from tiny_llm_ref.serving.scheduler import PreemptNewest, Scheduler, TokenBudget
from tiny_llm_ref.serving.speculative import Speculative, accept

RIGHT, WRONG = 4.5, 8.0  # standard deviations: right code is below the one, the mistakes that are tried above the other


def deviations(outcomes, law):
    """Pearson's chi-square of these outcomes, as standard deviations of a normal variable (Wilson and Hilferty).

    Outcomes that are expected fewer than five times are one outcome together.
    """
    law = {outcome: p for outcome, p in law.items() if p > 0}
    assert set(outcomes) <= law.keys(), "what cannot come came"
    rare = {outcome for outcome, p in law.items() if p * len(outcomes) < 5}
    counts = Counter("rare" if outcome in rare else outcome for outcome in outcomes)
    expected = {outcome: p * len(outcomes) for outcome, p in law.items() if outcome not in rare}
    if rare:
        expected["rare"] = sum(law[outcome] for outcome in rare) * len(outcomes)
    k = len(expected) - 1
    statistic = sum((counts[outcome] - n) ** 2 / n for outcome, n in expected.items())
    return ((statistic / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))


# ----------------------------------------------------------------------------------------------- accept

V = 4
FIRST = np.array([0.1, 0.4, 0.3, 0.2], np.float32)
AFTER = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.4, 0.1], [0.7, 0.1, 0.1, 0.1]], np.float32)
LAST = np.array([0.3, 0.1, 0.2, 0.4], np.float32)
GUESSED_FIRST = np.array([0.4, 0.1, 0.3, 0.2], np.float32)
GUESSED_AFTER = np.array([[0.3, 0.4, 0.2, 0.1]] * V, np.float32)
PAIRS = {(i, j): float(FIRST[i]) * float(AFTER[i, j]) for i in range(V) for j in range(V)}


def pairs(accept, are_drawn, count=12_000, seed=0):
    """The first two tokens of many runs, with two guesses each."""
    generator, found = np.random.default_rng(seed), []
    for _ in range(count):
        first = draw(GUESSED_FIRST, generator) if are_drawn else 1
        second = draw(GUESSED_AFTER[first], generator) if are_drawn else 3
        rows = np.stack([GUESSED_FIRST, GUESSED_AFTER[first]]) if are_drawn else None
        tokens = accept(np.stack([FIRST, AFTER[first], LAST]), Draft([first, second], rows), generator)
        if len(tokens) == 1:
            tokens += accept(AFTER[tokens[:1]], Draft([]), generator)
        found.append(tuple(tokens[:2]))
    return found


@pytest.mark.parametrize("are_drawn", [True, False], ids=["drawn", "certain"])
def test_pairs_have_the_models_distribution(are_drawn):
    assert deviations(pairs(accept, are_drawn), PAIRS) < RIGHT


def from_the_whole_row(target, draft, random):
    """In place of a rejected guess, any token of the model's."""
    for i, token in enumerate(draft.tokens):
        if random.random() * q_of(draft, i) >= target[i, token]:
            return [*draft.tokens[:i], draw(target[i], random)]
    return [*draft.tokens, draw(target[-1], random)]


def one_number_for_all(target, draft, random):
    """The same random number decides on all guesses."""
    chance = random.random()
    for i, token in enumerate(draft.tokens):
        if chance * q_of(draft, i) >= target[i, token]:
            return [*draft.tokens[:i], draw(rest_of(target, draft, i), random)]
    return [*draft.tokens, draw(target[-1], random)]


def on_behind_a_rejection(target, draft, random):
    """Guesses behind a rejected one count as well."""
    tokens = list(draft.tokens)
    for i, token in enumerate(tokens):
        if random.random() * q_of(draft, i) >= target[i, token]:
            tokens[i] = draw(rest_of(target, draft, i), random)
    return [*tokens, draw(target[-1], random)]


def by_p_alone(target, draft, random):
    """A guess that was drawn is accepted as a certain one is, and rejected as one that was drawn."""
    for i, token in enumerate(draft.tokens):
        if random.random() >= target[i, token]:
            return [*draft.tokens[:i], draw(rest_of(target, draft, i), random)]
    return [*draft.tokens, draw(target[-1], random)]


def q_of(draft, i):
    return 1.0 if draft.probabilities is None else float(draft.probabilities[i][draft.tokens[i]])


def rest_of(target, draft, i):
    q = np.eye(V)[draft.tokens[i]] if draft.probabilities is None else draft.probabilities[i]
    return np.maximum(target[i] - q, 0)


@pytest.mark.parametrize(
    ("mistake", "are_drawn"),
    [
        (from_the_whole_row, True),
        (from_the_whole_row, False),
        (one_number_for_all, True),
        (one_number_for_all, False),
        (on_behind_a_rejection, True),
        (on_behind_a_rejection, False),
        (by_p_alone, True),
    ],
)
def test_pairs_of_mistakes_have_not(mistake, are_drawn):
    """The statistic has the power to see them."""
    assert deviations(pairs(mistake, are_drawn), PAIRS) > WRONG


def test_drawn_guesses_may_be_taken_for_certain():
    """Given any guess, the tokens have the model's distribution. But fewer guesses are accepted."""
    lengths = []

    def certain(target, draft, random):
        lengths.append([len(function(target, guesses, random)) for function, guesses in ways(draft)])
        return accept(target, Draft(draft.tokens), random)

    def ways(draft):
        return (accept, draft), (accept, Draft(draft.tokens))

    assert deviations(pairs(certain, True), PAIRS) < RIGHT
    drawn, taken_for_certain = np.mean(lengths, axis=0)
    assert drawn > taken_for_certain + 0.1


def test_rounding_rejects_what_is_equal():
    """p a little below q everywhere, by rounding, and a number next to 1: there is no rest to draw from."""

    class AlmostOne:
        def random(self):
            return 1 - 2.0**-53

    rows = np.array([[0.5, 0.5]], np.float32)
    slightly_less = np.nextafter(rows, np.float32(0))
    tokens = accept(np.concatenate([slightly_less, rows]), Draft([0], rows), AlmostOne())
    assert tokens in ([1], [0, 1])


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.6, "top_k": 5},
        {"temperature": 1.5, "top_p": 0.8},
        {"temperature": 1.2, "min_p": 0.15},
        {"temperature": 0.9, "repetition_penalty": 1.7, "top_k": 8, "top_p": 0.95, "min_p": 0.01},
        {"temperature": 0.0, "repetition_penalty": 3.0},
    ],
    ids=str,
)
def test_probabilities_are_what_the_sampler_draws_from(options):
    logits = mx.array(np.random.RandomState(3).standard_normal((1, 11)).astype(np.float32))
    text, count = [3, 1, 4, 1, 5], 40_000
    (row,) = probabilities(SamplingParams(**options), logits, [text])
    sampler = make_sampler(seed=8, **options)
    drawn = sampler(mx.repeat(logits, count, axis=0), mx.array([text] * count)).tolist()
    if options["temperature"] == 0:
        assert set(drawn) == {int(row.argmax())}
        assert row.max() == 1
    else:
        assert deviations(drawn, dict(enumerate(row.tolist()))) < RIGHT


# ------------------------------------------------------------------------------------------- the engine's draws

SMALL = 6  # tokens of a vocabulary


@cache
def model_of(seed, vocab_size=SMALL, layers=1, context=64):
    config = ModelConfig.from_hf(
        untrained_config(
            vocab_size=vocab_size, num_hidden_layers=layers, max_position_embeddings=context, eos_token_id=None
        )
    )
    weights = {name: mx.array(weight) for name, weight in random_weights(expected_shapes(config), seed).items()}
    for name in weights:
        if name.startswith("lm_head"):  # so that no token is certain
            weights[name] *= 0.4
    return build_model(config, weights)


def pairs_by_the_model(model, prompt, params):
    """The exact distribution of the first two tokens."""

    def row(text):
        return probabilities(params, model(mx.array([text]))[:, -1], [text])[0].astype(np.float64)

    first = row(prompt)
    return {
        (i, j): first[i] * after
        for i in np.flatnonzero(first).tolist()
        for j, after in enumerate(row([*prompt, i]).tolist())
        if after
    }


class Likeliest(ModelDrafter):
    """Guesses the likeliest token, and says that it was drawn."""

    def propose(self, wanted):
        drafts = super().propose(wanted)
        rows = [draft.probabilities for draft in drafts]
        return [
            draft if row is None else Draft(row.argmax(axis=-1).tolist(), row)
            for draft, row in zip(drafts, rows, strict=True)
        ]


def drafter_of(kind):
    if kind == "n-gram":
        return NGramDrafter()
    model = model_of(7)
    return (Likeliest if kind == "likeliest" else ModelDrafter)(model, BatchedKVCache(1, 64, 32))


def engine_pairs(kind, params, count):
    """The first two tokens of many requests with the same prompt; and the share of guesses that were accepted."""
    model = model_of(1)
    scheduler = Scheduler(BatchedKVCache(1, 64, 32), 64)
    engine = speculative(model, scheduler, drafter_of(kind), num_drafts=3)
    requests = [
        Request(str(seed), PROMPT, SamplingParams(max_tokens=3, seed=seed, ignore_eos=True, **params))
        for seed in range(count)
    ]
    for request in requests:
        engine.add(request)
    for _ in engine.run():
        pass
    rate = sum(request.num_accepted for request in requests) / sum(request.num_drafted for request in requests)
    return [tuple(request.output[:2]) for request in requests], rate


PROMPT = [2, 0, 3, 1, 2, 0, 3, 4, 2]  # which repeats itself
SETTINGS = {
    "plain": {"temperature": 1.0},
    "top-k and penalty": {"temperature": 0.8, "top_k": 5, "repetition_penalty": 1.4},
    "top-p and min-p": {"temperature": 1.3, "top_p": 0.9, "min_p": 0.05},
}


@pytest.mark.parametrize("kind", ["model", "n-gram"])
@pytest.mark.parametrize("params", SETTINGS.values(), ids=SETTINGS)
def test_an_engines_tokens_have_the_models_distribution(kind, params):
    law = pairs_by_the_model(model_of(1), PROMPT, SamplingParams(**params))
    found, rate = engine_pairs(kind, params, 1500)
    assert 0.05 < rate < 0.95, "some guesses are accepted, and some are not"
    assert deviations(found, law) < RIGHT


def test_an_engine_whose_drafter_says_what_is_not_true_has_not():
    law = pairs_by_the_model(model_of(1), PROMPT, SamplingParams(temperature=1.0))
    found, _ = engine_pairs("likeliest", {"temperature": 1.0}, 1500)
    assert deviations(found, law) > WRONG


# ------------------------------------------------------------------------------------------------- traffic

LAYERS = 2


@cache
def near(seed, noise):
    """A model whose weights differ a little from those of the model of this seed: its guesses are often right."""
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


def speculative(model, scheduler, drafter, num_drafts=4, observers=(), is_checked=False):
    return Engine(model, scheduler, observers, is_checked, Speculative(drafter, num_drafts))


def requests_of(seed):
    """Greedy ones that share beginnings, with and without a penalty and ends of their own."""
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
    """Requests come at random, and some are aborted; steps that raise one of these errors are tried again."""
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
@pytest.mark.parametrize("drafting", ["n-gram", "slots", "few pages", "prefix"])
def test_any_traffic(where, drafting):
    """Whatever the cache of either model: greedy requests get what they get alone, and nothing is left behind."""
    seed = len(where + drafting)
    model = model_of(1, 40, LAYERS)
    drafter = NGramDrafter() if drafting == "n-gram" else ModelDrafter(near(1, 0.15), cache_of(drafting))
    cache, requests = cache_of(where), requests_of(seed)
    engine = speculative(model, scheduler_of(cache), drafter, 4, is_checked=True)
    serve(engine, requests, seed)
    assert_as_alone(model, requests)
    drafted, accepted = (
        sum(getattr(request, f"num_{what}") for request in requests) for what in ("drafted", "accepted")
    )
    assert 0 < accepted < drafted, "some guesses are right, and some are not"
    cache.check_integrity([])
    if drafting != "n-gram":
        drafter.cache.check_integrity([])


def test_little_memory_preempts():
    """Else the test above would not try it."""

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
    """Rejected guesses were in the pages, too: none of them is found again."""
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
    """A model that fails in some of its passes: before it stored anything, or after all."""

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
    """A step in which a model fails is tried again, and each request gets what it gets alone."""
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
    """What it had planned to store is not taken for stored: with the same model, all its guesses are right."""
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
    """Its `reserve` puts a request's pages into a new list, as a learner's may."""

    def reserve(self, stored, count):
        stored.pages = list(stored.pages)
        return super().reserve(stored, count)


class Sevens:
    """A drafter that always guesses 7."""

    def propose(self, wanted):
        return [Draft([7] * count) for _, count in wanted]

    def forget(self, request):
        """Nothing is kept."""


def test_a_chunk_has_the_pages_of_its_guesses():
    """In whatever list they are: the chunk was made before there were guesses."""
    cache = NewLists(1, PagePool(8, page_size=2))
    scheduler = Scheduler(cache)
    scheduler.add(Request("a", [1, 2, 3], SamplingParams(max_tokens=20)))
    (chunk,) = Speculative(Sevens(), num_drafts=5).draft(scheduler.schedule(), cache, 16).chunks
    assert chunk.end == 8
    assert len(chunk.pages) == 4
