"""Count the blocks that causal attention computes, with 64 queries and 64 keys per block."""

QUERIES = KEYS = 64


def count(L: int, S: int) -> tuple[int, int]:
    """Return how many blocks are computed, and in how many of these blocks a key is hidden from a query."""
    computed = crossed = 0
    for first_query in range(0, L, QUERIES):
        last_query = min(first_query + QUERIES, L) - 1
        seen_by_first, seen_by_last = S - L + first_query + 1, S - L + last_query + 1
        for first in range(0, seen_by_last, KEYS):
            computed += 1
            crossed += min(first + KEYS, seen_by_last) > seen_by_first
    return computed, crossed


print("    L     S  all blocks  computed  with hidden keys   useful")
for L, S in ((64, 64), (64, 164), (512, 512), (512, 4096), (4096, 4096), (1, 4096)):
    computed, crossed = count(L, S)
    all_blocks = -(-L // QUERIES) * -(-S // KEYS)
    useful = (L * (S - L) + L * (L + 1) / 2) / (computed * QUERIES * KEYS)
    print(f"{L:5}{S:6}{all_blocks:12,}{computed:10,}{crossed:18,}{useful:9.1%}")
