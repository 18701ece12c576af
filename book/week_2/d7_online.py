"""Print the running sums of online softmax for twelve keys in blocks of four, and join the blocks in three ways."""

import math
from functools import reduce
from typing import NamedTuple

SCORES = [1.0, 0.0, 2.0, 1.0, 4.0, 1.0, 3.0, 0.0, 2.0, 4.0, 1.0, 3.0]
VALUES = [5.0, 1.0, -2.0, 4.0, 3.0, -1.0, 2.0, 6.0, -3.0, 1.0, 4.0, 2.0]  # each value is one number


class Seen(NamedTuple):
    """Largest score and running sums of the keys seen so far."""

    largest: float
    total: float  # sum of exp(score - largest)
    out: float  # sum of exp(score - largest) * value


def block(start: int, stop: int) -> Seen:
    largest = max(SCORES[start:stop])
    weights = [math.exp(score - largest) for score in SCORES[start:stop]]
    return Seen(largest, sum(weights), sum(w * v for w, v in zip(weights, VALUES[start:stop], strict=True)))


def joined(a: Seen, b: Seen) -> Seen:
    largest = max(a.largest, b.largest)
    keep_a, keep_b = math.exp(a.largest - largest), math.exp(b.largest - largest)
    total = a.total * keep_a + b.total * keep_b
    return Seen(largest, total, a.out * keep_a + b.out * keep_b)


seen = Seen(-math.inf, 0.0, 0.0)
print("block            scores  largest  factor   total      out  out / total")
for start in (0, 4, 8):
    before, seen = seen, joined(seen, block(start, start + 4))
    scores = " ".join(f"{score:.0f}" for score in SCORES[start : start + 4])
    factor = math.exp(before.largest - seen.largest)
    print(
        f"{start:3} to {start + 3:2}{scores:>14}{seen.largest:9.0f}{factor:8.4f}{seen.total:8.4f}{seen.out:9.4f}"
        f"{seen.out / seen.total:13.4f}"
    )

a, b, c = block(0, 4), block(4, 8), block(8, 12)
ways = {"all at once": [block(0, 12)], "last block first": [c, b, a], "b and c, then a": [joined(b, c), a]}
for name, parts in ways.items():
    whole = reduce(joined, parts)
    print(f"{name:17}{whole.out / whole.total:.4f}")
