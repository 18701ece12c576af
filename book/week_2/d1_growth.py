"""Count the positions that are copied into longer arrays while n tokens are stored one at a time."""

from collections.abc import Callable


def copied(n: int, grow: Callable[[int], int]) -> int:
    """Return how many positions are copied. grow: returns the new capacity when `end` positions do not fit."""
    capacity = total = 0
    for end in range(1, n + 1):
        if end > capacity:
            capacity = grow(end)
            total += end - 1
    return total


WAYS = {
    "step 1": lambda end: end,
    "step 16": lambda end: -(-end // 16) * 16,
    "step 256": lambda end: -(-end // 256) * 256,
    "doubling": lambda end: max(256, 2 * (end - 1)),
    "all at once": lambda end: 40_960,
}

for n in (1_000, 10_000, 40_960):
    print(f"{n:,} tokens")
    for name, grow in WAYS.items():
        total = copied(n, grow)
        print(f"  {name:12}{total:14,} copied, {total / n:9,.1f} for each token")
