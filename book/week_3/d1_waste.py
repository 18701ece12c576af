"""Count the places that static batches and a continuous batch use for the same requests. No model is run."""

import random

from tiny_llm.serving.batch import Batch
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import Scheduler

SLOTS = 8


class StaticScheduler(Scheduler):
    """A scheduler that begins requests only while no request runs: a batch lasts until its last request is finished."""

    def schedule(self) -> Batch:
        self.may_begin = not self.running
        return super().schedule()

    def begin(self) -> Request | None:
        return super().begin() if self.may_begin else None


def workload(seed: int, spread: str) -> list[Request]:
    """Return 200 requests. Their outputs all have 100 tokens, have 1 to 200, or are mostly short and a few long."""
    draw = random.Random(seed)
    lengths = {
        "all 100": lambda: 100,
        "1 to 200": lambda: draw.randint(1, 200),
        "a few long": lambda: min(800, 1 + int(draw.expovariate(1 / 100))),
    }
    return [Request(str(i), [0], SamplingParams(max_tokens=lengths[spread]())) for i in range(200)]


def serve(scheduler: Scheduler, requests: list[Request]) -> tuple[int, int]:
    """Return the number of steps, and of rows in all steps. Each new token is token 0."""
    for request in requests:
        scheduler.add(request)
    steps = rows = 0
    while list(scheduler):
        batch = scheduler.schedule()
        steps, rows = steps + 1, rows + batch.num_tokens
        for chunk in batch.chunks:
            chunk.request.add(0, eos_token_ids=(), max_length=1024)
            scheduler.cache.commit(chunk.request, chunk.end)
            if chunk.request.finish_reason:
                scheduler.remove(chunk.request)
    return steps, rows


print(f"200 requests, {SLOTS} slots")
print("output tokens   batch         steps     rows   places   used   rows a step")
for spread in ("all 100", "1 to 200", "a few long"):
    for kind in (StaticScheduler, Scheduler):
        scheduler = kind(BatchedKVCache(1, SLOTS, 1024), SLOTS)
        steps, rows = serve(scheduler, workload(7, spread))
        name = "static" if kind is StaticScheduler else "continuous"
        places = steps * SLOTS
        print(f"{spread:15} {name:11} {steps:7,} {rows:8,} {places:8,} {rows / places:6.0%} {rows / steps:10.1f}")
