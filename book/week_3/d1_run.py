"""Serve four requests in two slots. For each step, print the requests, their rows and their new tokens."""

from collections.abc import Sequence

import mlx.core as mx

from tiny_llm.models import load
from tiny_llm.serving.batch import Batch
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.request import Request, TextStream
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import Scheduler


class LastBatch:
    """An observer of the engine that keeps the chunks of the last step."""

    def on_step(self, engine: Engine, batch: Batch, touched: Sequence[Request]) -> None:
        self.chunks = batch.chunks


model, tokenizer = load("story", mx.float32)
cache = BatchedKVCache(len(model.layers), num_slots=2, capacity=64)
last = LastBatch()
engine = Engine(model, Scheduler(cache, max_running=2), [last])

ARRIVALS = {  # step -> requests that arrive: name, prompt, sampling parameters
    0: [("a", "Once upon a time", SamplingParams(max_tokens=4))],
    1: [
        ("b", "Tom was afraid of the dark. He told", SamplingParams(stop=["."])),
        ("c", "There was a", SamplingParams(max_tokens=3, temperature=0.8, seed=1)),
    ],
    3: [("d", "The dog lived in a", SamplingParams(max_tokens=5))],
}

print("step   waiting   rows: request x tokens   what each got")
step = 0
while engine.has_work or step in ARRIVALS:
    for id, prompt, params in ARRIVALS.get(step, []):
        engine.add(Request(id, tokenizer.encode(prompt), params, TextStream(tokenizer, params.stop)))
    before = {request.id: len(request.output) for request in engine.scheduler}
    touched = engine.step()
    waiting = " ".join(request.id for request in engine.scheduler.waiting)
    rows = ", ".join(f"{chunk.request.id} x {len(chunk.tokens)}" for chunk in last.chunks)
    got = []
    for request in touched:
        new = tokenizer.decode(request.output[before[request.id] :])
        got.append(f"{request.id} {new!r}" + (f" ({request.finish_reason})" if request.finish_reason else ""))
    print(f"{step:4}   {waiting:7}   {rows:22}   {'; '.join(got)}")
    step += 1
