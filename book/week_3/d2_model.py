"""Run an engine without weights. Its clock moves by the time that `model_cost` of week 2 gives for Qwen3-0.6B's steps.

python book/week_3/d2_model.py budgets    fifteen requests generate when a prompt of 900 tokens arrives
python book/week_3/d2_model.py traffic    forty seconds of short and long prompts that arrive at random times
"""

import random
import sys
from collections.abc import Sequence
from types import SimpleNamespace

import mlx.core as mx

from tiny_llm.costs import Cost, Machine, model_cost
from tiny_llm.serving.batch import Batch
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.latency import Recorder, percentile
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import Scheduler, TokenBudget
from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B

CONFIG = ModelConfig.from_hf(QWEN3_0_6B)
BITS = 4.5  # per weight, with its share of scale and bias
CPU, GPU = Machine(peak=1100e9, bandwidth=90e9), Machine(peak=100e12, bandwidth=1e12)
MACHINES = {"1,100 GFLOP/s, 90 GB/s": CPU, "100 TFLOP/s, 1 TB/s": GPU}


def step_cost(batch: Batch) -> Cost:
    """Add up all weights, and each chunk's rows, keys and values, and its output layer if the chunk needs logits."""
    operations, cached = 0.0, 0.0
    output = 2 * CONFIG.hidden_size * CONFIG.vocab_size
    for chunk in batch.chunks:
        cost = model_cost(CONFIG, len(chunk.tokens), chunk.end, bytes_per_weight=0)
        operations += cost.operations - (0 if chunk.num_logits else output)
        cached += cost.bytes
    weights = model_cost(CONFIG, 1, 1, BITS / 8).bytes - model_cost(CONFIG, 1, 1, 0).bytes
    return Cost(operations, weights + cached)


class NoWeights:
    """A model that computes nothing: every next token is token 0."""

    config = SimpleNamespace(vocab_size=2, max_position_embeddings=2048, eos_token_ids=())

    def hidden(self, tokens: mx.array, cache: object) -> mx.array:
        return mx.zeros((len(tokens), 1, 1))

    def logits(self, hidden: mx.array) -> mx.array:
        return mx.zeros((len(hidden), 1, 2))


class Clock:
    """An observer with a simulated clock: each step takes as long as the machine needs for the step's cost."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.now = 0.0

    def on_step(self, engine: Engine, batch: Batch, touched: Sequence[Request]) -> None:
        if batch.chunks:
            self.now += self.machine.seconds(step_cost(batch))

    def on_abort(self, engine: Engine, request: Request) -> None:
        """Do nothing: aborting a request takes no time."""


def simulate(
    arrivals: list[tuple[float, Request]],
    machine: Machine,
    token_budget: int | None,
    max_running: int = 16,
    until: Request | None = None,
) -> Recorder:
    """Serve requests that arrive at these times, in order: all requests, or until the request `until` has a token.

    token_budget: None for no budget, as on day 1.
    """
    cache = BatchedKVCache(0, max_running, NoWeights.config.max_position_embeddings)
    scheduler = Scheduler(cache, max_running, TokenBudget(token_budget) if token_budget else None)
    clock = Clock(machine)
    recorder = Recorder(clock=lambda: clock.now)
    engine = Engine(NoWeights(), scheduler, [clock, recorder])
    coming = list(arrivals)
    while (coming or engine.has_work) and not (until and until.output):
        if not engine.has_work:
            clock.now = max(clock.now, coming[0][0])
        while coming and coming[0][0] <= clock.now:
            arrival, request = coming.pop(0)
            recorder.arrive(request)
            recorder.arrivals[request.id] = arrival  # the request may have arrived during a step
            engine.add(request)
        engine.step()
    return recorder


def request(id: str, length: int, max_tokens: int) -> Request:
    return Request(id, [1] * length, SamplingParams(max_tokens=max_tokens))


def rows_at_the_ridge(machine: Machine) -> float:
    """Return how many rows a step has if computing them takes as long as reading the weights."""
    one, two = (model_cost(CONFIG, L, L, BITS / 8) for L in (1, 2))
    return one.bytes / machine.bandwidth / ((two.operations - one.operations) / machine.peak)


def budgets() -> None:
    for name, machine in MACHINES.items():
        print(f"{name}; ridge: {rows_at_the_ridge(machine):.1f} rows")
        print("  budget   steps   longest step   between tokens, at most   first token of the prompt")
        for budget in (None, 512, 256, 128, 64, 32, 16):
            running = [request(f"r{i}", 1, max_tokens=1000) for i in range(15)]
            long = request("long", 900, max_tokens=2)
            arrivals = [*((0.0, each) for each in running), (1e-9, long)]  # the prompt arrives during the first step
            recorder = simulate(arrivals, machine, budget, until=long)
            steps = [sum(step.tokens.values()) for step in recorder.steps if "long" in step.tokens]
            between = percentile([wait for each in running for wait in recorder.of(each).between], 100)
            waits = f"{1e3 * between:20,.1f} ms{1e3 * recorder.of(long).first:25,.1f} ms"
            print(f"{budget or 'none':>8}{len(steps):8}{max(steps):10} rows{waits}")


def arriving() -> list[tuple[float, Request]]:
    """Return the same requests at each call: three per second on average, some of them with a long prompt."""
    draw = random.Random(7)
    now, arrivals = 0.0, []
    while now < 40:
        length = draw.randint(700, 1100) if draw.random() < 0.1 else draw.randint(10, 60)
        arrivals.append((now, request(f"r{len(arrivals)}", length, max_tokens=draw.randint(20, 120))))
        now += draw.expovariate(3.0)
    return arrivals


def traffic() -> None:
    lengths = [len(each.prompt) for _, each in arriving()]
    print(f"{len(lengths)} requests in 40 seconds, {sum(length >= 700 for length in lengths)} with a long prompt")
    print("milliseconds    first token        between tokens             longest wait of a request")
    print("  budget       p50      p99      p50      p99      max            p50      p90")
    for budget in (None, 256, 128, 64, 32):
        arrivals = arriving()
        recorder = simulate(arrivals, CPU, budget)
        found = [recorder.of(each) for _, each in arrivals]
        first = [1e3 * each.first for each in found]
        between = [1e3 * wait for each in found for wait in each.between]
        longest = [1e3 * max(each.between) for each in found]
        row = [percentile(first, 50), percentile(first, 99)]
        row += [percentile(between, percent) for percent in (50, 99, 100)]
        row += [percentile(longest, 50), percentile(longest, 90)]
        print(f"{budget or 'none':>8}" + "{:10,.0f}{:9,.0f}{:9,.1f}{:9,.1f}{:9,.1f}{:15,.1f}{:9,.1f}".format(*row))


{"budgets": budgets, "traffic": traffic}[sys.argv[1]]()
