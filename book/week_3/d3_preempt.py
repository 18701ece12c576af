"""Serve three requests in seven pages of four positions. For each step, print chunks, preemptions and page owners."""

import mlx.core as mx

from tiny_llm.generate import generate
from tiny_llm.models import load
from tiny_llm.serving.distributions import sampler_of
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.page_pool import PagePool
from tiny_llm.serving.paged_cache import PagedKVCache
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import PreemptNewest, Scheduler, TokenBudget

model, tokenizer = load("story", mx.float32)
cache = PagedKVCache(len(model.layers), PagePool(7, page_size=4))


class Printed:
    """An observer that prints each step when the step is done."""

    def __init__(self):
        self.steps = 0

    def on_step(self, engine, batch, touched):
        self.steps += 1
        chunks = "   ".join(f"{chunk.request.id} {chunk.start:2} to {chunk.end - 1:2}" for chunk in batch.chunks)
        over = " ".join(request.id for request in touched if request.finish_reason)
        owner = {page: request.id for request in engine.scheduler.running for page in request.pages}
        pages = " ".join(owner.get(page, ".") for page in range(cache.pool.num_pages))
        print(f"{self.steps:4}   {chunks:39}{' '.join(batch.preempted):12}{over:7}{pages}")

    def on_abort(self, engine, request):
        """Do nothing: no request is aborted."""


engine = Engine(model, Scheduler(cache, 4, TokenBudget(16), PreemptNewest()), [Printed()], is_checked=True)
requests = [
    Request("a", tokenizer.encode("Mia had a little red key. One day"), SamplingParams(10, ignore_eos=True)),
    Request("b", tokenizer.encode("Tom was in"), SamplingParams(13, temperature=0.6, seed=1, ignore_eos=True)),
    Request("c", tokenizer.encode("The old box"), SamplingParams(10, temperature=0.6, seed=2, ignore_eos=True)),
]
for request in requests:
    engine.add(request)

print("step   positions computed                     preempted   over   pages")
for _ in engine.run():
    pass

for request in requests:
    params = request.params
    alone = list(generate(model, request.prompt, sampler_of(params), params.max_tokens))
    count, prompt = len(request.output), len(request.prompt)
    print(f"{request.id}: {count} tokens after a prompt of {prompt}, as alone: {alone == request.output}")
