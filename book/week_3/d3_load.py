"""Schedule 200 requests in slots and in pages of the same memory, and print counts. No model is run: all tokens are 0.

python book/week_3/d3_load.py slots    slots for the longest possible and the longest actual request, and pages
python book/week_3/d3_load.py pages    a pool with fewer and fewer pages
"""

import random
import sys

from tiny_llm.serving.batch import Batch
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import PagedKVCache
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import PreemptNewest, Scheduler, TokenBudget

CONTEXT, POSITIONS, BUDGET = 2_048, 16_384, 512


def requests() -> list[Request]:
    """Return requests whose prompts and outputs have a hundred tokens on average. A few are much longer."""
    rng = random.Random(3)
    lengths = [[min(CONTEXT // 2, int(rng.lognormvariate(4.6, 0.9)) + 1) for _ in range(2)] for _ in range(200)]
    return [Request(f"r{i}", [0] * prompt, SamplingParams(output)) for i, (prompt, output) in enumerate(lengths)]


class Counts:
    """The counts of a run. running, stored: the mean requests and positions in the cache while others wait."""

    def __init__(self, scheduler: Scheduler):
        self.steps = self.computed = self.preempted = 0
        running, stored = [], []
        for request in requests():
            scheduler.add(request)
        while batch := self.step(scheduler):
            if scheduler.waiting:
                running.append(len(scheduler.running))
                stored.append(sum(chunk.end for chunk in batch.chunks))
        self.running, self.stored = (sum(values) / max(len(values), 1) for values in (running, stored))

    def step(self, scheduler: Scheduler) -> Batch | None:
        """Do what an engine does in a step, without the model. Return None if there was nothing to compute."""
        batch = scheduler.schedule()
        for chunk in batch.chunks:
            request = chunk.request
            if chunk.num_logits:
                request.add(0, (), CONTEXT)
            scheduler.cache.commit(request, min(chunk.end, request.num_tokens - 1))
            if request.finish_reason is not None:
                scheduler.remove(request)
        self.steps += 1
        self.computed += batch.num_tokens
        self.preempted += len(batch.preempted)
        return batch if batch.chunks else None


def in_slots(capacity: int) -> Counts:
    num_slots = POSITIONS // capacity
    return Counts(Scheduler(BatchedKVCache(0, num_slots, capacity), num_slots, TokenBudget(BUDGET)))


def in_pages(num_pages: int, page_size: int) -> Counts:
    cache = PagedKVCache(0, PagePool(num_pages, page_size))
    return Counts(Scheduler(cache, 128, TokenBudget(BUDGET), PreemptNewest()))


def slots() -> None:
    lengths = [len(request.prompt) + request.params.max_tokens for request in requests()]
    print(
        f"200 requests of {min(lengths)} to {max(lengths):,} tokens, {sum(lengths):,} together; room for {POSITIONS:,}"
    )
    print("                      running   memory that holds tokens   steps   preempted")
    ways = {
        f"slots of {CONTEXT:,}": in_slots(CONTEXT),
        f"slots of {max(lengths):,}": in_slots(max(lengths)),
        "pages of 256": in_pages(POSITIONS // 256, 256),
        "pages of 16": in_pages(POSITIONS // 16, 16),
    }
    for name, counts in ways.items():
        row = f"{counts.running:13.1f}{counts.stored / POSITIONS:27.1%}{counts.steps:8,}{counts.preempted:12}"
        print(f"{name:16}{row}")


def pages() -> None:
    needed = sum(len(request.prompt) + request.params.max_tokens - 1 for request in requests())
    print(f"{needed:,} tokens, if each is computed once")
    print("pages   running   steps   preempted   computed again")
    for num_pages in (4_096, 1_536, 1_024, 512, 256, 128):
        counts = in_pages(num_pages, 16)
        again = counts.computed - needed
        row = f"{counts.running:10.1f}{counts.steps:8,}{counts.preempted:12}"
        print(f"{num_pages:5,}{row}{again:9,} ={again / needed:6.1%}")


if __name__ == "__main__":
    {"slots": slots, "pages": pages}[sys.argv[1]]()
