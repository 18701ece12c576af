"""Print a story step by step: accepted guesses in brackets, rejected ones in dashes, then the model's own token."""

import mlx.core as mx

from tiny_llm.models import load
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.drafters import ModelDrafter
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import Scheduler
from tiny_llm.serving.speculative import Speculative

model, tokenizer = load("story", mx.float32)
small, _ = load("story-draft", mx.float32)


def word(token: int) -> str:
    return tokenizer.decode([token]).strip() or "·"


def slots(which):
    return BatchedKVCache(len(which.layers), num_slots=1, capacity=128)


prompt = tokenizer.encode("Once upon a time, there was a girl named Mia.")
request = Request("mia", prompt, SamplingParams(max_tokens=48, temperature=0.7, seed=7))
decoding = Speculative(ModelDrafter(small, slots(small)), num_drafts=4)
engine = Engine(model, Scheduler(slots(model), 1), is_checked=True, decoding=decoding)
engine.add(request)

steps = 0
while engine.has_work:
    before, accepted = len(request.output), request.num_accepted
    engine.step()
    steps += 1
    guesses = list(request.draft.tokens)
    right = request.num_accepted - accepted
    shown = [f"[{word(token)}]" for token in guesses[:right]] + [f"-{word(token)}-" for token in guesses[right:]]
    own = [word(token) for token in request.output[before + right :]]
    print(f"{steps:3}  " + " ".join([*shown, "+", *own]))
print(tokenizer.decode(request.output).strip())
print(
    f"{len(request.output)} tokens in {steps} steps; {request.num_accepted} of {request.num_drafted} guesses accepted"
)
