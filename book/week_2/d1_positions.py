"""Count the positions and the rows of logits that `generate_simple` and `generate` compute in each step."""

import mlx.core as mx

from tiny_llm.generate import generate, generate_simple
from tiny_llm.kv_cache import NoCache
from tiny_llm.models import load
from tiny_llm.sampler import greedy


class Counted:
    """A model that counts the computed positions and rows of logits in each step."""

    def __init__(self, model):
        self.model, self.config, self.layers = model, model.config, model.layers
        self.positions, self.rows = [], []

    def hidden(self, tokens, cache):
        self.positions.append(tokens.shape[1])
        return self.model.hidden(tokens, cache)

    def logits(self, hidden):
        self.rows.append(hidden.shape[1])
        return self.model.logits(hidden)

    def __call__(self, tokens):
        return self.logits(self.hidden(tokens, NoCache(len(self.layers))))


model, tokenizer = load("story", mx.float32)
prompt = tokenizer.encode("Mia had a red key. She hid the key in the old box.")
week_1, cached = Counted(model), Counted(model)
texts = [list(loop(m, prompt, greedy, 40)) for loop, m in ((generate_simple, week_1), (generate, cached))]

print(f"prompt of {len(prompt)} tokens, {len(texts[0])} new ones, the same: {texts[0] == texts[1]}")
print("            generate_simple       generate")
print("step       positions   rows   positions   rows")
for step in (1, 2, 3, 20, 40):
    counts = [numbers[step - 1] for m in (week_1, cached) for numbers in (m.positions, m.rows)]
    print("{:4} {:15} {:6} {:11} {:6}".format(step, *counts))
print("{:>4} {:15,} {:6,} {:11} {:6}".format("all", *(sum(n) for m in (week_1, cached) for n in (m.positions, m.rows))))
