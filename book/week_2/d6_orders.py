"""Compare two loop orders for tiles with day 4's kernel: how often a weight is unpacked, and the share of the peak."""

from collections.abc import Iterator

M_TILE, N_TILE = 8, 32  # with AVX-512
N = 3072  # rows of W
PANEL = 10  # making a panel takes about as long as multiplying ten rows of x by the panel


def day_4(M: int) -> Iterator[str]:
    for _ in range(N // N_TILE):
        for _ in range(M):
            yield "panel"  # row by row, but unpacks as many weights as a panel has


def x_outside(M: int) -> Iterator[str]:
    for _ in range(0, M, M_TILE):
        for _ in range(0, N, N_TILE):
            yield "panel"
            yield "tile"


def w_outside(M: int) -> Iterator[str]:
    for _ in range(0, N, N_TILE):
        yield "panel"
        for _ in range(0, M, M_TILE):
            yield "tile"


def share(M: int, steps: list[str]) -> float:
    """Return the requested products as a share of all products that could be computed in the same time."""
    return M * N / N_TILE / (PANEL * steps.count("panel") + M_TILE * steps.count("tile"))


print("            times unpacked                of the peak")
print("     M   day 4   x outside   W outside   x outside   W outside")
for M in (1, 8, 9, 16, 32, 128, 512):
    orders = [list(order(M)) for order in (day_4, x_outside, w_outside)]
    times = [steps.count("panel") * N_TILE // N for steps in orders]
    shares = [f"{share(M, steps):.0%}" for steps in orders[1:]]
    print(f"{M:6}{times[0]:8}{times[1]:12}{times[2]:12}{shares[0]:>12}{shares[1]:>12}")
