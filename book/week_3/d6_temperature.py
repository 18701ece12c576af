"""Print the mean probability that `story` accepts a guess of `story-draft`, at each token of held-out stories.

drawn: guesses are drawn from q and judged with q, sum of min(p, q). for certain: they are drawn from q, but judged as
certain guesses, sum of p q. likeliest: the guess is the drafter's likeliest token x, judged as a certain guess, p(x).
"""

import mlx.core as mx
import numpy as np

from tiny_llm.models import load
from tiny_llm.serving.distributions import probabilities
from tiny_llm.serving.sampling_params import SamplingParams
from tiny_llm_models.evaluation import held_out_stories

large, tokenizer = load("story", mx.float32)
small, _ = load("story-draft", mx.float32)
stories = [tokenizer.encode(story) for story in held_out_stories("english", 12)]
scores = [(large(mx.array([text]))[0], small(mx.array([text]))[0]) for text in stories]

print(f"{sum(map(len, stories)):,} tokens")
print("temperature      drawn   for certain   likeliest")
for temperature in (0.0, 0.4, 0.7, 1.0, 1.5, 3.0):
    params, found = SamplingParams(temperature=temperature), []
    for logits in scores:
        p, q = (probabilities(params, rows, [[]] * len(rows)) for rows in logits)
        likeliest = p[np.arange(len(p)), q.argmax(axis=-1)]
        found.append(np.stack([np.minimum(p, q).sum(axis=-1), (p * q).sum(axis=-1), likeliest]))
    drawn, certain, best = np.concatenate(found, axis=1).mean(axis=1)
    print(f"{temperature:11.1f} {drawn:10.3f} {certain:13.3f} {best:11.3f}")
