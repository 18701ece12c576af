"""Print guesses from n-grams, and how many guesses are accepted in texts with and without repetitions."""

import mlx.core as mx

from tiny_llm.models import load
from tiny_llm.serving.batched_cache import BatchedKVCache
from tiny_llm.serving.drafters import NGramDrafter, propose_by_ngram
from tiny_llm.serving.engine import Engine
from tiny_llm.serving.request import Request
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm.serving.scheduler import Scheduler
from tiny_llm.serving.speculative import Speculative

for text in ("the cat saw the dog and the", "to be or not to be or", "one two three"):
    print(f"{text} ... {' '.join(propose_by_ngram(text.split(), 4)) or '(nothing)'}")

model, tokenizer = load("story", mx.float32)


def chat(*turns: str) -> list[int]:
    """Return a prompt in which user and assistant take turns."""
    said = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)]
    return list(tokenizer.apply_chat_template(said, add_generation_prompt=True))


def serve(name: str, prompt: list[int]) -> None:
    request = Request(name, prompt, SamplingParams(max_tokens=24))
    cache = BatchedKVCache(len(model.layers), num_slots=1, capacity=256)
    engine = Engine(model, Scheduler(cache, 1), decoding=Speculative(NGramDrafter(), num_drafts=6))
    engine.add(request)
    steps = 0
    while engine.has_work:
        engine.step()
        steps += 1
    guesses = f"{request.num_accepted:2} of {request.num_drafted:2} guesses"
    print(f"{name:11} {len(request.output):2} tokens in {steps:2} steps, {guesses}: ", end="")
    print(tokenizer.decode(request.output, skip_special_tokens=True).strip())


QUESTION = "Mia had a small red key. Mia hid the key in the old box. Then Mia went to the river. Where is the key?"
serve("a story", tokenizer.encode("Once upon a time, there was a girl named Mia."))
serve("a question", chat(QUESTION))
serve("once more", chat(QUESTION, "The key is in the old box.", "Where is the key?"))
