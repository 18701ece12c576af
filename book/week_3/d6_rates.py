"""Let `story-draft` guess for `story` in eight stories at once, and print the acceptance by number of guesses."""

import mlx.core as mx

from tiny_llm.models import load
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.drafters import ModelDrafter
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import Scheduler
from tiny_llm.serving.speculative import Speculative
from tiny_llm_models.evaluation import held_out_stories

REQUESTS, BEGINNING, NEW = 8, 40, 60

model, tokenizer = load("story", mx.float32)
small, _ = load("story-draft", mx.float32)
prompts = [tokenizer.encode(story)[:BEGINNING] for story in held_out_stories("english", REQUESTS)]


class Counted:
    """A model that counts its passes, and the rows in these passes, after the prompts."""

    def __init__(self, model):
        self.model, self.config, self.passes, self.rows = model, model.config, 0, 0

    def hidden(self, tokens, cache):
        if len(tokens) < REQUESTS * BEGINNING:
            self.passes, self.rows = self.passes + 1, self.rows + len(tokens)
        return self.model.hidden(tokens, cache)

    def logits(self, hidden):
        return self.model.logits(hidden)


def slots(which):
    return BatchedKVCache(len(which.layers), REQUESTS, capacity=128)


def serve(temperature: float, num_drafts: int) -> str:
    large, drafting = Counted(model), Counted(small)
    drafter = ModelDrafter(drafting, slots(small))
    engine = Engine(large, Scheduler(slots(model), REQUESTS), decoding=Speculative(drafter, num_drafts))
    requests = [Request(str(i), prompt, SamplingParams(NEW, temperature, seed=i)) for i, prompt in enumerate(prompts)]
    for request in requests:
        engine.add(request)
    steps = 0
    while engine.has_work:
        steps += sum(1 for _ in engine.scheduler)
        engine.step()
    tokens, drafted, accepted = (
        sum(numbers)
        for numbers in zip(*((len(each.output), each.num_drafted, each.num_accepted) for each in requests), strict=True)
    )
    counts = f"{accepted / drafted:8.0%} {tokens / steps:14.2f} {large.passes:13} {drafting.passes:9}"
    return f"{counts} {large.rows / tokens:14.1f}"


print("temperature   guesses   accepted   tokens a step   large passes   small   rows a token")
for temperature in (0.0, 0.7):
    for num_drafts in (1, 2, 4, 8):
        print(f"{temperature:11.1f} {num_drafts:9} {serve(temperature, num_drafts)}")
