"""Print the steps in which a prompt of 900 tokens is read while three requests generate: as a whole, and in chunks."""

import mlx.core as mx

from tiny_llm.generate import generate
from tiny_llm.models import load
from tiny_llm.sampler import greedy
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.latency import Recorder
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import Scheduler, TokenBudget

model, tokenizer = load("story-draft", mx.float32)
STORY = "Mia had a red key. She hid the key in the old box. Tom found a blue ball, and put the ball under the bed. "
PROMPTS = {
    "a": tokenizer.encode("Tom had a blue ball. One day"),
    "b": tokenizer.encode("Mia went back to the river."),
    "c": tokenizer.encode("The old box was red."),
    "long": tokenizer.encode(32 * STORY)[:900],
}
PARAMS = SamplingParams(max_tokens=24, ignore_eos=True)


def serve(scheduler: Scheduler) -> tuple[dict[str, list[int]], Recorder]:
    """Add the long prompt after three steps. Return the output of each request, and the recorder."""
    recorder = Recorder()
    engine = Engine(model, scheduler, [recorder], is_checked=True)
    requests = {id: Request(id, prompt, PARAMS) for id, prompt in PROMPTS.items()}
    for id in "abc":
        engine.add(requests[id])
    for _ in range(3):
        engine.step()
    engine.add(requests["long"])
    list(engine.run())
    return {id: request.output for id, request in requests.items()}, recorder


def cache() -> BatchedKVCache:
    return BatchedKVCache(len(model.layers), num_slots=4, capacity=1024)


outputs = []
for name, scheduler in (
    ("whole prompts", Scheduler(cache(), max_running=4)),
    ("budget of 256", Scheduler(cache(), max_running=4, budget=TokenBudget(256))),
):
    output, recorder = serve(scheduler)
    outputs.append(output)
    print(f"{name}\n  step     a    b    c  long   rows")
    for number, step in enumerate(recorder.steps[:9], start=1):
        counts = [step.tokens.get(id, 0) for id in PROMPTS]
        print("{:6}{:6}{:5}{:5}{:6}{:7}".format(number, *counts, sum(counts)))
    longest = max(sum(step.tokens.values()) for step in recorder.steps[1:])
    print(f"  longest wait of a, b and c for a token: {longest} rows")

alone = {id: list(generate(model, prompt, greedy, 24)) for id, prompt in PROMPTS.items()}
print(f"the same tokens, with whole prompts: {outputs[0] == alone}, in chunks: {outputs[1] == alone}")
