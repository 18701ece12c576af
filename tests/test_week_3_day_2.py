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

# ------------------------------------------------------------------------------------- task 1: a budget of tokens


class CountingCache:
    """A cache that holds no keys: room for `slots` requests, of up to `capacity` positions each."""

    def __init__(self, slots, capacity=10_000):
        self.slots, self.capacity = slots, capacity
        self.lengths = {}

    def length(self, id):
        return self.lengths[id]

    def can_open(self, tokens):
        return len(self.lengths) < self.slots and len(tokens) <= self.capacity

    def open(self, id, tokens):
        assert self.can_open(tokens), f"{id!r} was opened, and there is no room"
        self.lengths[id] = 0

    def can_extend(self, id, count):
        return self.lengths[id] + count <= self.capacity

    def extend(self, id, tokens):
        assert self.can_extend(id, len(tokens)), f"{id!r} was extended, and there is no room"
        self.lengths[id] += len(tokens)

    def trim(self, id, count):
        self.lengths[id] -= count

    def close(self, id):
        del self.lengths[id]

    def check_integrity(self, lengths):
        assert self.lengths == lengths, f"stored are {self.lengths}, expected {dict(lengths)}"


class Traffic:
    """Requests, a scheduler, and a cache that only counts: what an engine does between its steps, without a model."""

    def __init__(self, impl, token_budget, max_running=4, slots=None, capacity=10_000):
        self.impl = impl
        self.cache = CountingCache(slots or max_running, capacity)
        self.scheduler = impl.serving.chunked_scheduler.ChunkedScheduler(self.cache, max_running, token_budget)
        self.requests = {}

    def add(self, id, length, max_tokens=100, output=0):
        """A request with a prompt of so many tokens, each of its own; some of its output may be there already."""
        first = 1000 * (len(self.requests) + 1)
        params = self.impl.serving.request.SamplingParams(max_tokens=max_tokens)
        request = self.impl.serving.request.Request(id, list(range(first, first + length)), params)
        for token in range(output):
            request.add(token, (), 100_000)
        self.requests[id] = request
        self.scheduler.add(request)

    def plan(self):
        """What the next step computes: of each chunk id, start, end, and whether it is scored."""
        batch = self.scheduler.schedule()
        found = []
        for chunk in batch.chunks:
            request, start = self.requests[chunk.request.id], chunk.start
            tokens = list(chunk.tokens)
            expected = list(request.tokens)[start : start + len(tokens)]
            assert tokens == expected, "a chunk has the next tokens of its request, from `start` on"
            found.append((request.id, start, start + len(tokens), chunk.scored))
        self.scheduler.check_integrity()
        return found

    def settle(self, plan):
        """Give a token to whoever was scored; who has all tokens leaves."""
        for id, _, _, scored in plan:
            request = self.requests[id]
            if scored:
                request.add(7, (), 100_000)
            if request.finish_reason is not None:
                self.scheduler.remove(request)

    def step(self):
        plan = self.plan()
        self.settle(plan)
        return plan

    def forget(self, id, count):
        """The cache has lost the last positions of a request: they have to be computed again."""
        self.cache.trim(id, count)

    def statuses(self):
        return {id: str(request.status.value) for id, request in self.requests.items()}


def assert_steps(traffic, *expected):
    """Compare the next steps with what they have to be."""
    for number, plan in enumerate(expected, start=1):
        got = traffic.step()
        assert got == plan, f"step {number}: chunks as (id, start, end, scored)"


@task_1
def test_task_1_a_long_prompt(impl):
    """In chunks as long as the budget; the last one is scored. Then a token in each step."""
    traffic = Traffic(impl, token_budget=4)
    traffic.add("a", 10)
    assert_steps(traffic, [("a", 0, 4, 0)], [("a", 4, 8, 0)], [("a", 8, 10, 1)], [("a", 10, 11, 1)], [("a", 11, 12, 1)])


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
    """All that is left of the prompt, if it fits; it is the only one that is scored."""
    traffic = Traffic(impl, token_budget=6)
    traffic.add("a", length)
    assert_steps(traffic, *([chunk] for chunk in chunks), [("a", length, length + 1, 1)])


@task_1
def test_task_1_a_prompt_while_others_generate(impl):
    """Each gets its token in each step, and the prompt what they leave of the budget."""
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
    """Who came first begins first, and gets all that it needs; what is left is for the next, also of one that runs."""
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
    """Where the budget is used up, it waits: it is not in the cache, and takes nobody's place there."""
    traffic = Traffic(impl, token_budget=4, max_running=4)
    traffic.add("a", 9)
    traffic.add("b", 1)
    traffic.add("c", 5)
    assert_steps(traffic, [("a", 0, 4, 0)], [("a", 4, 8, 0)])
    got = traffic.statuses(), traffic.cache.lengths, [request.id for request in traffic.scheduler.waiting]
    assert got == ({"a": "running", "b": "waiting", "c": "waiting"}, {"a": 8}, ["b", "c"]), "who runs, and who waits"
    assert_steps(traffic, [("a", 8, 9, 1), ("b", 0, 1, 1), ("c", 0, 2, 0)])
    got = traffic.statuses()
    assert set(got.values()) == {"running"}, f"all three have begun: {got}"


@task_1
def test_task_1_only_tokens_that_are_generated(impl):
    """As many requests generate as the budget has tokens: each gets its own, and nobody begins."""
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
    """`begin` says so: no more than max_running, and no more than there is room for. Nobody is passed over."""
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
    """One pending token comes before many, whoever is older: a token of the output, or the last of a prompt."""
    traffic = Traffic(impl, token_budget=6)
    traffic.add("a", 2)
    traffic.add("b", 3)
    traffic.add("c", 4)
    assert_steps(
        traffic,
        [("a", 0, 2, 1), ("b", 0, 3, 1), ("c", 0, 1, 0)],
        [("a", 2, 3, 1), ("b", 3, 4, 1), ("c", 1, 4, 1)],
    )
    traffic.forget("a", 2)  # three pending, as of a prompt that has just come
    assert_steps(traffic, [("b", 4, 5, 1), ("c", 4, 5, 1), ("a", 1, 4, 1)])
    for id, length in (("a", 3), ("b", 2), ("c", 4)):
        traffic.forget(id, length)
    assert_steps(traffic, [("a", 1, 5, 1), ("b", 3, 5, 0)], [("a", 5, 6, 1), ("b", 5, 6, 1), ("c", 1, 5, 0)])


@task_1
def test_task_1_a_part_is_lost(impl):
    """Between planning and the next step, all of one prompt and the last token of another: the one comes first."""
    traffic = Traffic(impl, token_budget=6)
    traffic.add("a", 4)
    traffic.add("b", 1, output=1)
    got = traffic.plan()
    assert got == [("a", 0, 4, 1), ("b", 0, 2, 1)], "chunks as (id, start, end, scored)"
    traffic.forget("a", 4)
    traffic.forget("b", 1)
    assert_steps(traffic, [("b", 1, 2, 1), ("a", 0, 4, 1)])


@task_1
def test_task_1_the_last_token_of_a_prompt(impl):
    """It is one pending token like any other, of a request that has no output yet."""
    traffic = Traffic(impl, token_budget=4)
    traffic.add("a", 2)
    traffic.add("b", 3)
    assert_steps(traffic, [("a", 0, 2, 1), ("b", 0, 2, 0)])
    traffic.forget("a", 2)
    traffic.add("c", 5)
    assert_steps(traffic, [("b", 2, 3, 1), ("a", 0, 3, 1)], [("a", 3, 4, 1), ("b", 3, 4, 1), ("c", 0, 2, 0)])


@task_1
def test_task_1_new_requests_come_last(impl):
    """Behind the rest of a prompt that runs, also where their own prompt is a single token."""
    traffic = Traffic(impl, token_budget=6)
    traffic.add("a", 9)
    assert_steps(traffic, [("a", 0, 6, 0)])
    traffic.add("b", 1)
    traffic.add("c", 7)
    assert_steps(traffic, [("a", 6, 9, 1), ("b", 0, 1, 1), ("c", 0, 2, 0)])


@task_1
def test_task_1_computed_again(impl):
    """A request that comes with some output: its output is computed as its prompt is, in chunks."""
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
    """Its place and its part of the budget are free for the next."""
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
    """The next step by the contract, of plain numbers.

    requests: how many tokens each has by now. lengths: what is stored of those that run, the oldest first. waiting:
    the others, in order.
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
    """Requests come, are aborted, lose what is stored: each step is the one that the contract describes."""
    draw = random.Random(seed)
    max_running, slots = draw.randint(1, 5), draw.randint(1, 5)
    budget = max_running + draw.randint(0, 12)
    traffic = Traffic(impl, budget, max_running, slots)
    names, order = count(), []  # order: of those that run
    for step in range(40):
        for _ in range(draw.choice((0, 0, 0, 1, 2)) if step else 3):
            traffic.add(f"r{next(names)}", draw.choice((1, 2, draw.randint(1, 40))), draw.randint(1, 8))
        gone = [id for id, request in traffic.requests.items() if request.finish_reason is not None]
        for id in gone:
            del traffic.requests[id]
        waiting = [request.id for request in traffic.scheduler.waiting]
        order = [id for id in order if id in traffic.requests]
        sizes = {id: len(list(request.tokens)) for id, request in traffic.requests.items()}
        lengths = {id: traffic.cache.lengths[id] for id in order}
        expected = naive_plan(sizes, lengths, waiting, budget, max_running, slots)
        got = traffic.plan()
        assert got == expected, f"step {step}: chunks as (id, start, end, scored)"
        order += [id for id, *_ in got if id not in order]
        fate = draw.random()
        if fate < 0.1 and got:  # the step fails, and is undone: the same is computed once more
            for id, start, end, _ in got:
                traffic.forget(id, end - start)
            continue
        traffic.settle(got)
        if fate > 0.85:
            for id in order:
                if traffic.requests[id].finish_reason is None and draw.random() < 0.7:
                    traffic.forget(id, draw.randint(0, traffic.cache.lengths[id]))
        elif fate > 0.8 and order and traffic.requests[order[-1]].finish_reason is None:
            id = order.pop()
            traffic.scheduler.remove(traffic.requests.pop(id))


def untrained(impl, folder):
    config = untrained_config(num_hidden_layers=2)
    shapes = impl.weights.expected_shapes(impl.config.ModelConfig.from_hf(config))
    write_untrained(folder, config, shapes, seed=3)
    return impl.models.load_model(folder)


def served(impl, model, requests, token_budget, arrivals, observers=()):
    """Serve requests, each from the step on that `arrivals` names, in order; return what each got.

    token_budget: of a `ChunkedScheduler`; None: whole prompts, by day 1's `Scheduler`.
    """
    cache = impl.serving.batched_cache.BatchedKVCache(len(model.layers), num_slots=4, capacity=80)
    if token_budget is None:
        scheduler = impl.serving.scheduler.Scheduler(cache, max_running=4)
    else:
        scheduler = impl.serving.chunked_scheduler.ChunkedScheduler(cache, 4, token_budget)
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
    """Whatever the chunks: each request gets the tokens that it gets alone, by week 2's `generate`."""
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
    make_sampler = impl.sampler.make_sampler
    expected = [
        list(impl.generate.generate(model, prompt, make_sampler(**options), 9))
        for prompt, options in zip(prompts, settings, strict=True)
    ]
    assert got == expected, "the tokens of each request"


# ---------------------------------------------------------------------------------- task 2: how long requests wait


def waits(impl, arrival, times):
    """`latencies`, as the first wait and the list of the others."""
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
    """The first wait begins when the request came; each other one when the token before was there."""
    got = waits(impl, arrival, times)
    assert got == expected, "time to first token, and the times between tokens"


@task_2
def test_task_2_a_single_token(impl):
    """It has a time to first token, and nothing between tokens."""
    got = waits(impl, 3.0, [4.5])
    assert got == (1.5, []), "time to first token, and the times between tokens"


@task_2
def test_task_2_tokens_of_the_same_step(impl):
    """A step may give several tokens to a request (day 6): nobody waited between them, which counts as a wait of 0."""
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
    """One of the values, never something between two of them."""
    got = impl.serving.latency.percentile(values, percent)
    assert got == expected, f"{percent} per cent of {len(values)} values"


@task_2
def test_task_2_values_in_any_order(impl):
    """They come as they were measured, and some of them more than once. The caller's list stays as it is."""
    values = [4.0, 9.0, 1.0, 4.0, 4.0, 7.0, 1.0, 4.0]
    before = list(values)
    got = [impl.serving.latency.percentile(values, percent) for percent in (0, 20, 30, 60, 75, 80, 90, 100)]
    assert got == [1.0, 1.0, 4.0, 4.0, 4.0, 7.0, 9.0, 9.0], "of 1 1 4 4 4 4 7 9"
    assert values == before, "the values that were given are in another order now"
    got = impl.serving.latency.percentile(tuple(values), 80)
    assert got == 7.0, "a tuple is a sequence too"


@task_2
def test_task_2_a_hundred_values(impl):
    """Of 1 to 100, n per cent is n, for each n: 7 * 100 / 100 is 7, but 7 / 100 * 100 is a little more."""
    values = [float(n) for n in range(1, 101)]
    got = [impl.serving.latency.percentile(values, percent) for percent in range(1, 101)]
    assert got == values, "n per cent of the values 1 to 100"


@task_2
@pytest.mark.parametrize("seed", range(3))
def test_task_2_by_the_definition(impl, seed):
    """The smallest value that enough of them do not exceed, counted with fractions."""
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
    """A ValueError. Keep the line of the stub that calls `_check_percent`."""
    impl.serving.latency.percentile([1.0], 50)  # a stub ends here
    with pytest.raises((ValueError, AssertionError)):
        impl.serving.latency.percentile(values, percent)


@task_2
def test_task_2_what_the_recorder_saw(impl, tmp_path):
    """An engine whose clock is the number of tokens that were computed: three generate, then a prompt of 60 comes."""
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
    """Counts the tokens that were computed. It comes before the recorder, which reads the count as the time."""

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
    """All waits together are the time from the arrival to the last token."""
    draw = random.Random(9)
    times = sorted(float(draw.randint(8, 400)) / 8 for _ in range(30))
    first, between = waits(impl, 0.5, times)
    got = len(between), first + sum(between)
    assert got == (29, times[-1] - 0.5), "number of waits between 30 tokens, and the sum of all waits"
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert between == steps, "each wait"
