"""Check the proof for five tokens with exact fractions, and print how often `accept` returns each in 20,000 runs."""

from collections import Counter
from fractions import Fraction

import numpy as np

from tiny_llm.serving.distributions import draw
from tiny_llm.serving.request import Draft
from tiny_llm.serving.speculative import accept

p = [Fraction(n, 20) for n in (2, 8, 6, 4, 0)]  # the model's probabilities
q = [Fraction(n, 20) for n in (10, 2, 2, 4, 2)]  # the drafter's probabilities
RUNS = 20_000

kept = [qx * min(1, px / qx) for px, qx in zip(p, q, strict=True)]  # the probability that x is guessed and accepted
rest = [max(px - qx, 0) for px, qx in zip(p, q, strict=True)]
rejected = 1 - sum(kept)
replaced = [rejected * r / sum(rest) for r in rest]

random, target, rows = np.random.default_rng(0), np.array([p, p], np.float32), np.array([q], np.float32)
drawn = Counter(accept(target, Draft([draw(rows[0], random)], rows), random)[0] for _ in range(RUNS))
certain = Counter(accept(target, Draft([0]), random)[0] for _ in range(RUNS))

print(f"a guess is rejected with probability {rejected} = sum of max(p - q, 0) = {sum(rest)}")
print("token      p      q   accepted + in place =   sum   drawn guesses   always token 0")
for x in range(5):
    total = kept[x] + replaced[x]
    sums = "{:10.2f} + {:8.2f} = {:5.2f}".format(*map(float, (kept[x], replaced[x], total)))
    print(f"{x:5} {float(p[x]):6.2f} {float(q[x]):6.2f} {sums} {drawn[x] / RUNS:15.3f} {certain[x] / RUNS:16.3f}")
    assert total == p[x]
for_certain = sum(px * qx for px, qx in zip(p, q, strict=True))
print(
    f"accepted: sum of min(p, q) = {float(sum(kept)):.2f}; if judged as certain, sum of p q = {float(for_certain):.2f}"
)
