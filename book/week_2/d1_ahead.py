"""Print when `generate` and `generate_ahead` begin each step of the model, and when they yield each token."""

from itertools import zip_longest

import mlx.core as mx

from tiny_llm.generate import generate, generate_ahead
from tiny_llm.models import load
from tiny_llm.sampler import greedy

model, tokenizer = load("story", mx.float32)
prompt = tokenizer.encode("Mia had a red key. She hid the key in the")


class Told:
    """Wrapper of `story` that logs when a step begins."""

    def __init__(self, log):
        self.config, self.layers, self.logits = model.config, model.layers, model.logits
        self.log, self.steps = log, 0

    def hidden(self, tokens, cache):
        self.steps += 1
        self.log.append(f"step {self.steps}")
        return model.hidden(tokens, cache)


logs = []
for loop in (generate, generate_ahead):
    log = [loop.__name__]
    logs.append(log)
    for number, token in enumerate(loop(Told(log), prompt, greedy, 4), 1):
        log.append(f"     token {number}: {tokenizer.decode([token])!r}")
for row in zip_longest(*logs, fillvalue=""):
    print("{:30}{}".format(*row).rstrip())
