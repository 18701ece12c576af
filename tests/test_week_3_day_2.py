"""Week 3 Day 2: chunked prefill."""

import random
from fractions import Fraction
from itertools import count, pairwise

import numpy as np
import pytest
from helpers import Inputs

from tiny_llm_models.untrained import untrained_config, write_untrained

task_1 = pytest.mark.task("w3d2.1")
task_2 = pytest.mark.task("w3d2.2")
task_3 = pytest.mark.task("w3d2.3")

# ------------------------------------------------------------------------------------- task 1: a budget of tokens


class CountingCache:
    """A cache without keys: it has room for `slots` requests of up to `capacity` positions each."""

    def __init__(self, slots, capacity=10_000):
        self.slots, self.capacity = slots, capacity
        self.held = []

    def open(self, stored):
        if len(self.held) == self.slots or len(stored.tokens) > self.capacity:
            return False
        self.held.append(stored)
        return True

    def reserve(self, stored, count):
        assert stored in self.held, f"room for {stored.id!r} was asked for, which does not run"
        return stored.num_computed_tokens + count <= self.capacity

    def commit(self, stored, num_computed_tokens):
        stored.num_computed_tokens = num_computed_tokens

    def close(self, stored):
        self.held.remove(stored)
        stored.num_computed_tokens = 0

    def check_integrity(self, held):
        assert self.held == list(held), f"stored are {self.held}, expected {list(held)}"


class Traffic:
    """Requests, a scheduler, and a cache that only counts. They do what an engine does between its steps, without a
    model."""

    def __init__(self, impl, token_budget, max_running=4, slots=None, capacity=10_000):
        self.impl = impl
        self.cache = CountingCache(slots or max_running, capacity)
        module = impl.serving.scheduler
        self.scheduler = module.Scheduler(self.cache, max_running, module.TokenBudget(token_budget))
        self.requests = {}

    def add(self, id, length, max_tokens=100, output=0):
        """Add a request with a prompt of this many tokens, and perhaps with some output already."""
        first = 1000 * (len(self.requests) + 1)
        params = self.impl.serving.request.SamplingParams(max_tokens=max_tokens)
        request = self.impl.serving.request.Request(id, list(range(first, first + length)), params)
        for token in range(output):
            request.add(token, (), 100_000)
        self.requests[id] = request
        self.scheduler.add(request)

    def plan(self):
        """Return the chunks of the next step: id, start, end, and the number of logits."""
        batch = self.scheduler.schedule()
        found = []
        for chunk in batch.chunks:
            request, start = self.requests[chunk.request.id], chunk.start
            tokens = list(chunk.tokens)
            expected = list(request.tokens)[start : start + len(tokens)]
            assert tokens == expected, "a chunk has the next tokens of its request, from `start` on"
            found.append((request.id, start, start + len(tokens), chunk.num_logits))
        self.scheduler.check_integrity()
        return found

    def settle(self, plan):
        """Commit the whole step, and give a token to each request that has logits. Finished requests leave."""
        for id, _, end, num_logits in plan:
            request = self.requests[id]
            self.cache.commit(request, end)
            if num_logits:
                request.add(7, (), 100_000)
            if request.finish_reason is not None:
                self.scheduler.remove(request)

    def step(self):
        plan = self.plan()
        self.settle(plan)
        return plan

    def forget(self, id, count):
        """Make the cache lose the last positions of a request, so that they have to be computed again."""
        self.requests[id].num_computed_tokens -= count

    def statuses(self):
        return {id: str(request.status.value) for id, request in self.requests.items()}


def assert_steps(traffic, *expected):
    """Fail unless the next steps are these."""
    for number, plan in enumerate(expected, start=1):
        got = traffic.step()
        assert got == plan, f"step {number}: chunks as (id, start, end, num_logits)"


@task_1
def test_task_1_a_long_prompt(impl):
    """A long prompt comes in chunks as long as the budget, and only the last one has logits. Then each step computes
    one token."""
    traffic = Traffic(impl, token_budget=4)
    traffic.add("a", 10)
    assert_steps(traffic, [("a", 0, 4, 0)], [("a", 4, 8, 0)], [("a", 8, 10, 1)], [("a", 10, 11, 1)], [("a", 11, 12, 1)])


@task_1
def test_task_1_a_new_list(impl):
    """Requests with one pending token come before those with several, whatever fits into the budget. The list of
    running requests stays unchanged."""
    module = impl.serving.request
    running = [module.Request(id, [5] * length) for id, length in zip("abcde", (9, 1, 3, 1, 2), strict=True)]
    budget = impl.serving.scheduler.TokenBudget(6)
    got = budget.order(running)
    assert "".join(request.id for request in got) == "bdace", "pending tokens: a 9, b 1, c 3, d 1, e 2"
    assert "".join(request.id for request in running) == "abcde", "the last that runs gives way on day 3: the newest"
    ones = [running[1], running[3]]
    got = budget.order(ones)
    assert "".join(request.id for request in got) == "bd"
    assert got is not ones, "a new list, even where the order is the same"


@task_1
@pytest.mark.parametrize(
    ("length", "chunks"),
    [
        (1, [("a", 0, 1, 1)]),
        (5, [("a", 0, 5, 1)]),
        (6, [("a", 0, 6, 1)]),
        (7, [("a", 0, 6, 0), ("a", 6, 7, 1)]),
        (12, [("a", 0, 6, 0), ("a", 6, 12, 1)]),
        (13, [("a", 0, 6, 0), ("a", 6, 12, 0), ("a", 12, 13, 1)]),
    ],
    ids=str,
)
def test_task_1_the_last_chunk(impl, length, chunks):
    """The last chunk has the rest of the prompt if it fits, and no other chunk has logits."""
    traffic = Traffic(impl, token_budget=6)
    traffic.add("a", length)
    assert_steps(traffic, *([chunk] for chunk in chunks), [("a", length, length + 1, 1)])


@task_1
def test_task_1_a_prompt_while_others_generate(impl):
    """Each generating request gets its token in each step, and the prompt gets the rest of the budget."""
    traffic = Traffic(impl, token_budget=5)
    traffic.add("a", 2)
    traffic.add("b", 1)
    assert_steps(traffic, [("a", 0, 2, 1), ("b", 0, 1, 1)])
    traffic.add("c", 8)
    assert_steps(
        traffic,
        [("a", 2, 3, 1), ("b", 1, 2, 1), ("c", 0, 3, 0)],
        [("a", 3, 4, 1), ("b", 2, 3, 1), ("c", 3, 6, 0)],
        [("a", 4, 5, 1), ("b", 3, 4, 1), ("c", 6, 8, 1)],
        [("a", 5, 6, 1), ("b", 4, 5, 1), ("c", 8, 9, 1)],
    )


@task_1
def test_task_1_prompts_share_a_step(impl):
    """The oldest request begins first and gets all that it needs. The rest of the budget goes to the next one, running
    or new."""
    traffic = Traffic(impl, token_budget=8, max_running=5)
    for id, length in (("a", 2), ("b", 3), ("c", 6), ("d", 4), ("e", 1)):
        traffic.add(id, length)
    assert_steps(
        traffic,
        [("a", 0, 2, 1), ("b", 0, 3, 1), ("c", 0, 3, 0)],
        [("a", 2, 3, 1), ("b", 3, 4, 1), ("c", 3, 6, 1), ("d", 0, 3, 0)],
        [("a", 3, 4, 1), ("b", 4, 5, 1), ("c", 6, 7, 1), ("d", 3, 4, 1), ("e", 0, 1, 1)],
        [("a", 4, 5, 1), ("b", 5, 6, 1), ("c", 7, 8, 1), ("d", 4, 5, 1), ("e", 1, 2, 1)],
    )


@task_1
def test_task_1_no_request_begins_for_nothing(impl):
    """If the budget is used up, a waiting request stays outside of the cache and takes no place there."""
    traffic = Traffic(impl, token_budget=4, max_running=4)
    traffic.add("a", 9)
    traffic.add("b", 1)
    traffic.add("c", 5)
    assert_steps(traffic, [("a", 0, 4, 0)], [("a", 4, 8, 0)])
    waiting = [request.id for request in traffic.scheduler.waiting]
    got = traffic.statuses(), [request.id for request in traffic.cache.held], waiting
    assert got == ({"a": "running", "b": "waiting", "c": "waiting"}, ["a"], ["b", "c"]), "who runs, and who waits"
    assert_steps(traffic, [("a", 8, 9, 1), ("b", 0, 1, 1), ("c", 0, 2, 0)])
    got = traffic.statuses()
    assert set(got.values()) == {"running"}, f"all three have begun: {got}"


@task_1
def test_task_1_only_tokens_that_are_generated(impl):
    """As many requests generate as the budget has tokens. Each gets its token, and no request begins."""
    traffic = Traffic(impl, token_budget=3, max_running=3, slots=3)
    for id in "abc":
        traffic.add(id, 1, max_tokens=3)
    traffic.add("d", 7)
    assert_steps(
        traffic,
        [("a", 0, 1, 1), ("b", 0, 1, 1), ("c", 0, 1, 1)],
        [("a", 1, 2, 1), ("b", 1, 2, 1), ("c", 1, 2, 1)],
        [("a", 2, 3, 1), ("b", 2, 3, 1), ("c", 2, 3, 1)],
        [("d", 0, 3, 0)],
    )


@task_1
@pytest.mark.parametrize(("max_running", "slots"), [(2, 9), (9, 2)], ids=["may not run", "no room in the cache"])
def test_task_1_who_may_not_begin(impl, max_running, slots):
    """`begin` allows at most max_running requests, and only if the cache has room. No waiting request is overtaken."""
    traffic = Traffic(impl, 20, max_running, slots)
    traffic.add("a", 3, max_tokens=2)
    traffic.add("b", 4, max_tokens=3)
    traffic.add("c", 5)
    traffic.add("d", 1)
    assert_steps(
        traffic,
        [("a", 0, 3, 1), ("b", 0, 4, 1)],
        [("a", 3, 4, 1), ("b", 4, 5, 1)],
        [("b", 5, 6, 1), ("c", 0, 5, 1)],
        [("c", 5, 6, 1), ("d", 0, 1, 1)],
    )


@task_1
def test_task_1_what_is_pending_decides(impl):
    """A request with one pending token comes before one with several, whichever is older. The token may be the last of
    a prompt."""
    traffic = Traffic(impl, token_budget=6)
    traffic.add("a", 2)
    traffic.add("b", 3)
    traffic.add("c", 4)
    assert_steps(
        traffic,
        [("a", 0, 2, 1), ("b", 0, 3, 1), ("c", 0, 1, 0)],
        [("a", 2, 3, 1), ("b", 3, 4, 1), ("c", 1, 4, 1)],
    )
    traffic.forget("a", 2)  # makes three tokens pending, as for a new prompt
    assert_steps(traffic, [("b", 4, 5, 1), ("c", 4, 5, 1), ("a", 1, 4, 1)])
    for id, length in (("a", 3), ("b", 2), ("c", 4)):
        traffic.forget(id, length)
    assert_steps(traffic, [("a", 1, 5, 1), ("b", 3, 5, 0)], [("a", 5, 6, 1), ("b", 5, 6, 1), ("c", 1, 5, 0)])


@task_1
def test_task_1_a_part_is_lost(impl):
    """Only the first of a request's two tokens was computed, so it now has one pending token and comes first."""
    traffic = Traffic(impl, token_budget=6)
    traffic.add("a", 4)
    traffic.add("b", 1, output=1)
    got = traffic.plan()
    assert got == [("a", 0, 4, 1), ("b", 0, 2, 1)], "chunks as (id, start, end, num_logits)"
    traffic.cache.commit(traffic.requests["b"], 1)
    assert_steps(traffic, [("b", 1, 2, 1), ("a", 0, 4, 1)])


@task_1
def test_task_1_the_last_token_of_a_prompt(impl):
    """The last token of a prompt is one pending token like any other, even though the request has no output yet."""
    traffic = Traffic(impl, token_budget=4)
    traffic.add("a", 2)
    traffic.add("b", 3)
    assert_steps(traffic, [("a", 0, 2, 1), ("b", 0, 2, 0)])
    traffic.forget("a", 2)
    traffic.add("c", 5)
    assert_steps(traffic, [("b", 2, 3, 1), ("a", 0, 3, 1)], [("a", 3, 4, 1), ("b", 3, 4, 1), ("c", 0, 2, 0)])


@task_1
def test_task_1_new_requests_come_last(impl):
    """New requests come after the rest of a running prompt, even if their own prompt is a single token."""
    traffic = Traffic(impl, token_budget=6)
    traffic.add("a", 9)
    assert_steps(traffic, [("a", 0, 6, 0)])
    traffic.add("b", 1)
    traffic.add("c", 7)
    assert_steps(traffic, [("a", 6, 9, 1), ("b", 0, 1, 1), ("c", 0, 2, 0)])


@task_1
def test_task_1_computed_again(impl):
    """A request may arrive with some output, which is computed in chunks like its prompt."""
    traffic = Traffic(impl, token_budget=4)
    traffic.add("a", 3, output=4)
    traffic.add("b", 2, output=1)
    assert_steps(
        traffic,
        [("a", 0, 4, 0)],
        [("a", 4, 7, 1), ("b", 0, 1, 0)],
        [("a", 7, 8, 1), ("b", 1, 3, 1)],
        [("a", 8, 9, 1), ("b", 3, 4, 1)],
    )


@task_1
def test_task_1_aborted_in_the_middle_of_its_prompt(impl):
    """An aborted request frees its place and its share of the budget for the next one."""
    traffic = Traffic(impl, token_budget=4, max_running=2)
    for id, length in (("a", 1), ("b", 30), ("c", 5)):
        traffic.add(id, length)
    assert_steps(traffic, [("a", 0, 1, 1), ("b", 0, 3, 0)], [("a", 1, 2, 1), ("b", 3, 6, 0)])
    traffic.scheduler.remove(traffic.requests["b"])
    assert_steps(traffic, [("a", 2, 3, 1), ("c", 0, 3, 0)], [("a", 3, 4, 1), ("c", 3, 5, 1)])


@task_1
def test_task_1_nothing_to_do(impl):
    traffic = Traffic(impl, token_budget=4)
    assert_steps(traffic, [])
    traffic.add("a", 2, max_tokens=1)
    assert_steps(traffic, [("a", 0, 2, 1)], [])


def naive_plan(requests, lengths, waiting, budget, max_running, slots):
    """Return the next step by the contract, computed with plain numbers.

    requests: how many tokens each request has by now. lengths: how many positions of each running request are stored,
    the oldest first. waiting: the other requests, in order.
    """
    pending = {id: requests[id] - length for id, length in lengths.items()}
    order = [id for id in pending if pending[id] == 1] + [id for id in pending if pending[id] > 1]
    order += waiting[: max(0, min(max_running, slots) - len(lengths))]
    plan = []
    for id in order:
        start, end = lengths.get(id, 0), requests[id]
        if budget and start < end:
            stop = min(end, start + budget)
            plan.append((id, start, stop, int(stop == end)))
            budget -= stop - start
    return plan


@task_1
@pytest.mark.parametrize("seed", range(6))
def test_task_1_any_traffic(impl, seed):
    """Requests arrive, are aborted, and lose stored positions. Each step is the one that the contract describes."""
    draw = random.Random(seed)
    max_running, slots = draw.randint(1, 5), draw.randint(1, 5)
    budget = max_running + draw.randint(0, 12)
    traffic = Traffic(impl, budget, max_running, slots)
    names, order = count(), []  # order: the running requests
    for step in range(40):
        for _ in range(draw.choice((0, 0, 0, 1, 2)) if step else 3):
            traffic.add(f"r{next(names)}", draw.choice((1, 2, draw.randint(1, 40))), draw.randint(1, 8))
        gone = [id for id, request in traffic.requests.items() if request.finish_reason is not None]
        for id in gone:
            del traffic.requests[id]
        waiting = [request.id for request in traffic.scheduler.waiting]
        order = [id for id in order if id in traffic.requests]
        sizes = {id: len(list(request.tokens)) for id, request in traffic.requests.items()}
        lengths = {id: traffic.requests[id].num_computed_tokens for id in order}
        expected = naive_plan(sizes, lengths, waiting, budget, max_running, slots)
        got = traffic.plan()
        assert got == expected, f"step {step}: chunks as (id, start, end, num_logits)"
        order += [id for id, *_ in got if id not in order]
        fate = draw.random()
        if fate < 0.1 and got:  # the step fails, and the next one computes the same
            continue
        traffic.settle(got)
        if fate > 0.85:
            for id in order:
                if traffic.requests[id].finish_reason is None and draw.random() < 0.7:
                    traffic.forget(id, draw.randint(0, traffic.requests[id].num_computed_tokens))
        elif fate > 0.8 and order and traffic.requests[order[-1]].finish_reason is None:
            id = order.pop()
            traffic.scheduler.remove(traffic.requests.pop(id))


def untrained(impl, folder):
    config = untrained_config(num_hidden_layers=2)
    shapes = impl.given.weights.expected_shapes(impl.given.config.ModelConfig.from_hf(config))
    write_untrained(folder, config, shapes, seed=3)
    return impl.models.load_model(folder)


def served(impl, model, requests, token_budget, arrivals, observers=()):
    """Serve requests, each from the step in `arrivals`, and return what each of them got.

    token_budget: None serves whole prompts, as on day 1.
    """
    cache = impl.serving.batched_cache.BatchedKVCache(len(model.layers), num_slots=4, capacity=80)
    module = impl.serving.scheduler
    scheduler = module.Scheduler(cache, 4, None if token_budget is None else module.TokenBudget(token_budget))
    engine = impl.serving.engine.Engine(model, scheduler, list(observers), is_checked=True)
    waiting = list(zip(arrivals, requests, strict=True))
    step = 0
    while waiting or engine.has_work:
        while waiting and waiting[0][0] <= step:
            request = waiting.pop(0)[1]
            for observer in observers:
                observer.arrive(request)
            engine.add(request)
        engine.step()
        step += 1
        assert step < 200, "after 200 steps there are requests that are not over"
    return [list(request.output) for request in requests]


@task_1
@pytest.mark.parametrize("token_budget", [4, 7, 100])
def test_task_1_token_for_token(impl, tmp_path, token_budget):
    """For any chunks, each request gets the tokens that week 2's `generate` gives it alone."""
    model = untrained(impl, tmp_path)
    prompts = [np.array(Inputs(40 + n).tokens(n, vocab_size=256)).tolist() for n in (3, 29, 1, 16, 8)]
    settings = [{"temperature": 0.0}] * 3 + [
        {"temperature": 0.8, "seed": 5},
        {"temperature": 0.9, "top_k": 20, "seed": 6},
    ]
    request = impl.serving.request
    requests = [
        request.Request(f"r{i}", prompt, request.SamplingParams(max_tokens=9, ignore_eos=True, **options))
        for i, (prompt, options) in enumerate(zip(prompts, settings, strict=True))
    ]
    got = served(impl, model, requests, token_budget, (0, 1, 2, 2, 5))
    sampler_of = impl.serving.distributions.sampler_of
    expected = [
        list(impl.generate.generate(model, request.prompt, sampler_of(request.params), 9)) for request in requests
    ]
    assert got == expected, "the tokens of each request"


# ---------------------------------------------------------------------------------- task 2: how long requests wait


def waits(impl, arrival, times):
    """Return `latencies` as the first wait and the list of the other waits."""
    found = impl.serving.latency.latencies(arrival, times)
    return found.first, list(found.between)


@task_2
def test_task_2_three_tokens(impl):
    got = waits(impl, 0.0, [3.0, 4.0, 5.0])
    assert got == (3.0, [1.0, 1.0]), "time to first token, and the times between tokens"
    got = impl.serving.latency.percentile([1.0, 2.0, 3.0, 4.0], 75)
    assert got == 3.0, "the third of four values"


@task_2
@pytest.mark.parametrize(
    ("arrival", "times", "expected"),
    [
        (10.0, [12.5, 13.0, 16.0, 16.25], (2.5, [0.5, 3.0, 0.25])),
        (-4.0, [-1.0, 0.0, 8.0], (3.0, [1.0, 8.0])),
        (10.0, [10.0, 10.5], (0.0, [0.5])),
        (10.0, (12.0, 15.0, 19.0), (2.0, [3.0, 4.0])),
    ],
    ids=["some", "a clock below zero", "at once", "a tuple"],
)
def test_task_2_from_token_to_token(impl, arrival, times, expected):
    """The first wait begins when the request arrives, and each other wait begins at the token before."""
    got = waits(impl, arrival, times)
    assert got == expected, "time to first token, and the times between tokens"


@task_2
def test_task_2_a_single_token(impl):
    """A single token has a time to first token, and no wait between tokens."""
    got = waits(impl, 3.0, [4.5])
    assert got == (1.5, []), "time to first token, and the times between tokens"


@task_2
def test_task_2_tokens_of_the_same_step(impl):
    """A step may give a request several tokens (day 6). The wait between them counts as 0."""
    got = waits(impl, 1.0, [2.0, 2.0, 2.0, 5.0, 5.0])
    assert got == (1.0, [0.0, 0.0, 3.0, 0.0]), "time to first token, and the times between tokens"


@task_2
@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([5.0], 0, 5.0),
        ([5.0], 50, 5.0),
        ([5.0], 100, 5.0),
        ([1.0, 2.0], 50, 1.0),
        ([1.0, 2.0], 51, 2.0),
        ([1.0, 2.0, 4.0], 50, 2.0),
        ([1.0, 2.0, 4.0, 8.0], 50, 2.0),
        ([1.0, 2.0, 4.0, 8.0], 0, 1.0),
        ([1.0, 2.0, 4.0, 8.0], 25, 1.0),
        ([1.0, 2.0, 4.0, 8.0], 25.5, 2.0),
        ([1.0, 2.0, 4.0, 8.0], 90, 8.0),
        ([1.0, 2.0, 4.0, 8.0], 100, 8.0),
    ],
    ids=str,
)
def test_task_2_nearest_rank(impl, values, percent, expected):
    """The percentile is one of the values, never an interpolation between two of them."""
    got = impl.serving.latency.percentile(values, percent)
    assert got == expected, f"{percent} per cent of {len(values)} values"


@task_2
def test_task_2_values_in_any_order(impl):
    """Values come in the order of measurement and may repeat. The caller's list stays unchanged."""
    values = [4.0, 9.0, 1.0, 4.0, 4.0, 7.0, 1.0, 4.0]
    before = list(values)
    got = [impl.serving.latency.percentile(values, percent) for percent in (0, 20, 30, 60, 75, 80, 90, 100)]
    assert got == [1.0, 1.0, 4.0, 4.0, 4.0, 7.0, 9.0, 9.0], "of 1 1 4 4 4 4 7 9"
    assert values == before, "the values that were given are in another order now"
    got = impl.serving.latency.percentile(tuple(values), 80)
    assert got == 7.0, "a tuple is a sequence too"


@task_2
def test_task_2_a_hundred_values(impl):
    """For the values 1 to 100, the n-th percentile is n. Note that 7 * 100 / 100 is 7, but 7 / 100 * 100 is slightly
    more."""
    values = [float(n) for n in range(1, 101)]
    got = [impl.serving.latency.percentile(values, percent) for percent in range(1, 101)]
    assert got == values, "n per cent of the values 1 to 100"


@task_2
@pytest.mark.parametrize("seed", range(3))
def test_task_2_by_the_definition(impl, seed):
    """The percentile is the smallest value that enough of the values do not exceed, counted with fractions."""
    draw = random.Random(seed)
    for _ in range(60):
        values = [float(draw.randint(0, 12)) for _ in range(draw.randint(1, 25))]
        percent = draw.choice((0, 50, 90, 95, 99, 100, draw.randint(0, 400) / 4))
        enough = Fraction(percent) * len(values) / 100
        expected = min(value for value in values if sum(other <= value for other in values) >= enough)
        got = impl.serving.latency.percentile(values, percent)
        assert got == expected, f"{percent} per cent of {values}"


@task_2
@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], -1), ([1.0, 2.0], 101)], ids=str)
def test_task_2_wrong_arguments(impl, values, percent):
    """Wrong arguments raise a ValueError. Keep the stub's call of `_check_percent`."""
    impl.serving.latency.percentile([1.0], 50)  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        impl.serving.latency.percentile(values, percent)


@task_2
def test_task_2_what_the_recorder_saw(impl, tmp_path):
    """The clock of this engine is the number of computed tokens. Three requests generate, and then a prompt of 60
    tokens arrives."""
    model = untrained(impl, tmp_path)
    request = impl.serving.request
    lengths = (2, 5, 3, 60)
    found = {}
    for token_budget in (None, 16):
        requests = [
            request.Request(
                f"r{i}",
                np.array(Inputs(60 + i).tokens(length, vocab_size=256)).tolist(),
                request.SamplingParams(max_tokens=12, ignore_eos=True),
            )
            for i, length in enumerate(lengths)
        ]
        recorder = impl.serving.latency.Recorder()
        computed = [0]
        recorder.clock = lambda done=computed, recorder=recorder: float(done[0])
        counter = CountingObserver(computed)
        served(impl, model, requests, token_budget, (0, 0, 0, 3), (counter, recorder))
        of_all = [recorder.of(request) for request in requests]
        longest = impl.serving.latency.percentile([wait for each in of_all[:3] for wait in each.between], 100)
        found[token_budget] = longest, of_all[3].first, sum(recorder.steps[-1].tokens.values())
    expected = {None: (63.0, 63.0, 1), 16: (16.0, 75.0, 1)}
    assert found == expected, "longest wait of the three, first wait of the prompt, tokens of the last step"


class CountingObserver:
    """An observer that counts computed tokens. It comes before the recorder, which reads the count as the time."""

    def __init__(self, computed):
        self.computed = computed

    def arrive(self, request):
        pass

    def on_step(self, engine, batch, touched):
        self.computed[0] += batch.num_tokens

    def on_abort(self, engine, request):
        pass


@task_2
def test_task_2_sums(impl):
    """All waits of a request add up to the time from its arrival to its last token."""
    draw = random.Random(9)
    times = sorted(float(draw.randint(8, 400)) / 8 for _ in range(30))
    first, between = waits(impl, 0.5, times)
    got = len(between), first + sum(between)
    assert got == (29, times[-1] - 0.5), "number of waits between 30 tokens, and the sum of all waits"
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert between == steps, "each wait"


# ------------------------------------------------------------------------------------ task 3: one draw for each row


def settings_of(impl, *params):
    return impl.serving.batch_sampler.Settings.of([impl.serving.request.SamplingParams(**each) for each in params])


def drawn(impl, logits, chances, *params, **options):
    """Draw a token for each row."""
    chances = np.array(chances, np.float64)
    tokens = impl.serving.batch_sampler.sample_rows(logits, settings_of(impl, *params), chances, **options)
    return [int(token) for token in tokens]


def logits_of(*probabilities):
    """Return rows with these probabilities at temperature 1."""
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities)).astype(np.float32)


def law(row, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Return the tokens that may come, in order, with their probabilities, by applying one filter after the other."""
    row = row.astype(np.float64) / temperature
    order = sorted(range(len(row)), key=lambda token: (-row[token], token))
    weights = np.exp(row - row.max())
    kept = order[:top_k] if top_k else order
    total, before, nucleus = sum(weights[token] for token in kept), 0.0, []
    for token in kept:
        if before < top_p * total or top_p == 1:
            nucleus.append(token)
        before += weights[token]
    kept = [token for token in nucleus if weights[token] >= min_p * weights[order[0]]]
    total = sum(weights[token] for token in kept)
    return {token: weights[token] / total for token in sorted(kept) if weights[token]}


def expected_token(row, chance, **params):
    """Return the first token at which the sum of the probabilities exceeds the chance; None if rounding may decide."""
    total = 0.0
    for token, p in law(row, **params).items():
        total += p
        if abs(total - chance) < 1e-6:
            return None
        if chance < total:
            return token
    return None


P = [0.1, 0.4, 0.05, 0.3, 0.15]  # sorted: 1, 3, 4, 0, 2


@task_3
def test_task_3_one_row(impl):
    """The first token owns the first part of the range of chances, the next token the next part, and so on."""
    got = [drawn(impl, logits_of(P), [chance], {"temperature": 1.0})[0] for chance in (0.0, 0.09, 0.11, 0.49, 0.51)]
    assert got == [0, 0, 1, 1, 2]


@task_3
@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": 3}, [1, 3, 4]),
        ({"top_k": 1}, [1]),
        ({"top_k": 9}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.69}, [1, 3]),
        ({"top_p": 0.71}, [1, 3, 4]),
        ({"top_p": 0.01}, [1]),
        ({"min_p": 0.3}, [1, 3, 4]),
        ({"min_p": 1.0}, [1]),
        ({"top_k": 3, "top_p": 0.8}, [1, 3]),  # 0.7 of the 0.85 that top-k keeps
        ({"top_k": 2, "min_p": 0.1}, [1, 3]),
        ({"top_p": 0.9, "min_p": 0.5}, [1, 3]),
        ({"top_p": 0.5, "min_p": 0.5}, [1, 3]),  # 0.5 of all, not of the 0.7 that min-p keeps
    ],
    ids=str,
)
def test_task_3_what_is_kept(impl, params, kept):
    """Each filter keeps a beginning of the sorted list. The kept tokens share the range of chances, in the vocabulary's
    order."""
    chances = [(i + 0.5) / 200 for i in range(200)]
    got = drawn(impl, np.repeat(logits_of(P), 200, axis=0), chances, *[{"temperature": 1.0} | params] * 200)
    assert list(dict.fromkeys(got)) == kept, "tokens in the order of the chances"
    expected = law(logits_of(P)[0], **params)
    for token in kept:
        share = got.count(token) / 200
        assert abs(share - expected[token]) < 0.011, f"part of the chances that token {token} has"


@task_3
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_task_3_temperature(impl, temperature):
    """The temperature changes probabilities, and so the tokens that top-p and min-p keep."""
    row = logits_of(P)[0]
    for params in ({}, {"top_p": 0.72}, {"min_p": 0.4}):
        for chance in (0.05, 0.37, 0.62, 0.93):
            settings = {"temperature": temperature} | params
            got = drawn(impl, row[None], [chance], settings)
            assert got == [expected_token(row, chance, **settings)], f"{settings}, chance {chance}"


@task_3
def test_task_3_each_row_with_its_own_settings(impl):
    """Rows in one call get the same tokens as each of them alone."""
    draw = random.Random(1)
    logits = np.array(Inputs(5).normal(40, 30)) * 3
    params = [
        {
            "temperature": draw.choice((0.5, 1.0, 2.0)),
            "top_k": draw.choice((0, 0, 1, 4, 12, 100)),
            "top_p": draw.choice((1.0, 1.0, 0.3, 0.8, 0.99)),
            "min_p": draw.choice((0.0, 0.0, 0.05, 0.4)),
        }
        for _ in range(40)
    ]
    chances = [draw.random() for _ in range(40)]
    got = drawn(impl, logits, chances, *params)
    alone = [drawn(impl, logits[i : i + 1], chances[i : i + 1], params[i])[0] for i in range(40)]
    assert got == alone, "each row alone"
    expected = [expected_token(logits[i], chances[i], **params[i]) for i in range(40)]
    assert [e for e in expected if e is not None] == [g for g, e in zip(got, expected, strict=True) if e is not None]


@task_3
@pytest.mark.parametrize("first", [1, 2, 7, 33])
def test_task_3_however_many_are_looked_at_first(impl, first):
    """`first` saves work but changes no result, neither when a filter cuts later than that, nor when logits are
    equal."""
    draw = random.Random(first)
    for levels in (None, 2, 1):
        logits = np.array(Inputs(6).normal(60, 50)) * 2
        logits = logits if levels is None else np.round(logits * levels) / levels  # makes many logits equal
        params = [
            {
                "temperature": draw.choice((0.2, 1.0, 3.0)),
                "top_k": draw.choice((0, 0, 1, 3, 20, 49, 50)),
                "top_p": draw.choice((1.0, 0.5, 0.95)),
                "min_p": draw.choice((0.0, 0.0, 0.02, 0.6)),
            }
            for _ in range(60)
        ]
        chances = [draw.choice((0.0, draw.random(), draw.random(), 0.999_999)) for _ in range(60)]
        got = drawn(impl, logits.astype(np.float32), chances, *params, first=first)
        assert got == drawn(impl, logits.astype(np.float32), chances, *params, first=50), f"levels: {levels}"


@task_3
def test_task_3_equal_logits(impl):
    """Of equal logits, those of smaller tokens come first. top-k and top-p keep exactly as many as they should."""
    row = np.zeros((1, 8), np.float32)
    chances = (0.0, 0.3, 0.6, 0.99)
    for params, expected in (
        ({}, [0, 2, 4, 7]),
        ({"top_k": 4}, [0, 1, 2, 3]),
        ({"top_p": 0.5}, [0, 1, 2, 3]),
        ({"top_k": 2}, [0, 0, 1, 1]),
        ({"top_p": 0.2}, [0, 0, 1, 1]),
        ({"min_p": 1.0}, [0, 2, 4, 7]),
    ):
        for first in (3, 8):
            got = [drawn(impl, row, [chance], {"temperature": 1.0} | params, first=first)[0] for chance in chances]
            assert got == expected, f"{params}, first = {first}"


@task_3
def test_task_3_many_equal_logits(impl):
    """Many logits are equal, and the tokens that are examined first do not include the first one in the vocabulary."""
    row = np.zeros((1, 400), np.float32)
    row[0, 200:300] = 5
    for params in ({"top_k": 3}, {"top_p": 0.025}, {"top_k": 50, "top_p": 0.05}):
        for first in (5, 20, 150):
            got = [drawn(impl, row, [chance], {"temperature": 0.2} | params, first=first)[0] for chance in (0.0, 0.5)]
            assert got == [200, 201], f"{params}, first = {first}"


@task_3
@pytest.mark.parametrize(
    ("params", "count"),
    [({}, 20_000), ({"top_k": 15_001}, 15_000), ({"top_p": 0.995}, 3_556), ({"min_p": 1e-7}, 20_000)],
    ids=str,
)
def test_task_3_many_small_probabilities(impl, params, count):
    """One token has nearly all of the probability. Of the 20,000 tokens that share the rest, `count` are kept, and each
    has its small part."""
    row = np.full(20_001, -15.0, np.float32)
    row[0] = 0
    chances = (0.5, 0.994, 0.996, 0.998, 0.9995)
    small = np.exp(-15.0)  # the first token has the weight 1
    places = [(chance * (1 + count * small) - 1) / small for chance in chances]
    expected = [int(max(place + 1, 0)) for place in places]
    got = drawn(impl, np.repeat(row[None], 5, axis=0), chances, *[{"temperature": 1.0} | params] * 5)
    assert np.abs(np.subtract(got, expected)).max() <= 1, f"expected {expected}, got {got}"


@task_3
def test_task_3_no_chance_for_the_impossible(impl):
    """A chance of 0 gives the first possible token, and never one with probability 0 or one that a filter removed."""
    logits = logits_of([0.0, 0.3, 0.7], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5])
    params = [{}, {"top_k": 2}, {"top_p": 0.6}, {"min_p": 0.9}]
    got = drawn(impl, logits, [0.0] * 4, *[{"temperature": 1.0} | each for each in params])
    assert got == [1, 1, 1, 2]


@task_3
def test_task_3_extreme_logits(impl):
    """The logits are extreme, but exponentials of differences to the largest one are finite."""
    row = np.array([[1000.0, 999.0, -1000.0], [-3e38, 3e38, 0.0]], np.float32)
    got = drawn(impl, row, [0.7, 0.99], {"temperature": 1.0}, {"temperature": 0.1, "top_p": 0.9})
    assert got == [0, 1]
    assert drawn(impl, row, [0.74, 0.5], {"temperature": 1.0}, {"temperature": 5.0}) == [1, 1]


@task_3
def test_task_3_the_last_chance(impl):
    """A chance just below 1 gives a possible token, however the sums are rounded."""
    logits = np.array(Inputs(7).normal(8, 300)).astype(np.float32)
    logits[:, ::3] = -np.inf
    almost = 1 - 2.0**-53
    for params in ({}, {"top_k": 7}, {"top_p": 0.6}, {"min_p": 0.1}):
        got = drawn(impl, logits, [almost] * 8, *[{"temperature": 1.0} | params] * 8)
        for row, token in zip(logits, got, strict=True):
            assert token == list(law(row, **params))[-1] or token in law(row, **params), params
            assert row[token] > -np.inf


@task_3
def test_task_3_all_digits_of_a_chance(impl):
    """A chance is a float64 number. In float32, both of these chances would be 0.5."""
    got = drawn(impl, logits_of([0.5, 0.5], [0.5, 0.5]), [0.5 - 1e-9, 0.5 + 1e-9], *[{"temperature": 1.0}] * 2)
    assert got == [0, 1]


@task_3
def test_task_3_a_list_of_numbers(impl):
    """The tokens are Python ints, because they become a request's output, and a client gets them as JSON."""
    settings = settings_of(impl, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 2})
    tokens = impl.serving.batch_sampler.sample_rows(logits_of(P, P), settings, np.array([0.3, 0.3]))
    assert isinstance(tokens, list)
    assert [type(token).__name__ for token in tokens] == ["int", "int"]


@task_3
def test_task_3_leaves_its_inputs_alone(impl):
    logits, chances = np.array(Inputs(8).normal(3, 20)).astype(np.float32), np.array([0.1, 0.5, 0.9])
    before = logits.copy(), chances.copy()
    drawn(impl, logits, chances, *[{"temperature": 0.7, "top_p": 0.8}] * 3)
    assert np.array_equal(logits, before[0]), "the logits were changed"
    assert np.array_equal(chances, before[1]), "the chances were changed"


@task_3
@pytest.mark.parametrize("token_budget", [4, 100])
def test_task_3_token_for_token(impl, tmp_path, token_budget):
    """Served together, each request gets the tokens that it gets alone, and that `generate` gives it row by row."""
    model = untrained(impl, tmp_path)
    options = [
        {"temperature": 0.8, "seed": 5},
        {},
        {"temperature": 1.0, "top_p": 0.7, "seed": 6},
        {"temperature": 1.2, "top_k": 5, "repetition_penalty": 1.5, "seed": 7},
        {"repetition_penalty": 1.3},
        {"temperature": 1.0, "presence_penalty": 2.0, "frequency_penalty": 1.0, "logit_bias": ((7, 3.0),), "seed": 8},
    ]

    def requests():
        module = impl.serving.request
        return [
            module.Request(
                f"r{i}",
                np.array(Inputs(70 + i).tokens(3 + 4 * i, vocab_size=256)).tolist(),
                module.SamplingParams(max_tokens=10, ignore_eos=True, **each),
            )
            for i, each in enumerate(options)
        ]

    together = batch_sampled(impl, model, requests(), token_budget)
    alone = [batch_sampled(impl, model, [request], token_budget)[0] for request in requests()]
    assert together == alone, "the tokens of each request"
    for request, got in list(zip(requests(), together, strict=True))[:-1]:  # no sampler has the last one's biases
        sampler = impl.serving.distributions.sampler_of(request.params)
        expected = list(impl.generate.generate(model, request.prompt, sampler, 10))
        assert got == expected, f"{request.id}, and what `generate` gives it"


def batch_sampled(impl, model, requests, token_budget):
    """Serve requests that arrive one after the other, and return what each of them got."""
    cache = impl.serving.batched_cache.BatchedKVCache(len(model.layers), num_slots=4, capacity=80)
    module = impl.serving.scheduler
    scheduler = module.Scheduler(cache, 4, module.TokenBudget(token_budget))
    decoding = impl.serving.batch_sampler.BatchSampler()
    engine = impl.serving.engine.Engine(model, scheduler, is_checked=True, decoding=decoding)
    for request in requests:
        engine.add(request)
        engine.step()
    for _ in engine.run():
        pass
    return [list(request.output) for request in requests]
