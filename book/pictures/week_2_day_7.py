"""The pictures of week 2, day 7."""

import math

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PALE

SCORES = (1, 0, 2, 1, 4, 1, 3, 0, 2, 4, 1, 3)  # the scores of d7_online.py


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = GREY) -> None:
    shape = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0, "zorder": 5}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, linewidth=1.3, **shape))


def rectangle(
    axes: Axes, x: float, y: float, width: float, height: float, colour: str, face: str = "white", **style: object
) -> None:
    axes.add_patch(Rectangle((x, y), width, height, edgecolor=colour, facecolor=face, **{"linewidth": 1.4, **style}))


def online() -> None:
    """Draw twelve scores in three blocks, the largest score so far, and the factor for the earlier sums."""
    _, axes = plt.subplots(figsize=(7.6, 2.9))
    colours, largest = (BLUE, GREEN, ORANGE), -math.inf
    for block, colour in enumerate(colours):
        part = SCORES[4 * block : 4 * block + 4]
        before, largest = largest, max(largest, *part)
        for i, score in enumerate(part):
            axes.bar(4 * block + i, score + 0.06, width=0.72, color=colour, alpha=0.75)
            axes.text(4 * block + i, -0.2, f"{score}", ha="center", va="top", fontsize=9)
        axes.plot((4 * block - 0.5, 4 * block + 3.5), (largest, largest), color="black", lw=1.6)
        axes.text(4 * block + 3.45, largest + 0.1, f"max {largest}", ha="right", va="bottom", fontsize=9)
        if block:
            x = 4 * block - 0.5
            axes.axvline(x, color=PALE, lw=1, ls=":", ymax=0.8)
            factor = f"× $e^{{{before} - {largest}}}$ = {math.exp(before - largest):.3g}"
            axes.text(x, 5.15, factor, ha="center", va="bottom")
            arrow(axes, (x - 1.7, 5), (x + 1.7, 5), GREY)
    axes.set(xlim=(-0.7, 11.7), ylim=(-0.9, 6))
    axes.axis("off")


def blocks() -> None:
    """Draw the scores in blocks: of a whole prompt, and of 64 queries that begin within a block of keys."""
    _, axes = plt.subplots(figsize=(8.2, 3.5))

    def scores(left: float, top: float, L: float, S: float, first_seen: float) -> None:
        """Draw L rows and S columns of scores in blocks of size 1. The first row sees `first_seen` columns."""
        for row in range(math.ceil(L)):
            height = min(1, L - row)
            for column in range(math.ceil(S)):
                width = min(1, S - column)
                x, y = left + column, top - row - height
                if column >= first_seen + row + height - 1e-9:
                    rectangle(axes, x, y, width, height, PALE, linestyle=":", linewidth=0.9)
                    continue
                crossed = min(column + 1, S) > first_seen + row + 1e-9
                rectangle(
                    axes, x, y, width, height, ORANGE if crossed else GREEN, ORANGE if crossed else GREEN, alpha=0.3
                )
                rectangle(axes, x, y, width, height, ORANGE if crossed else GREEN, "none", linewidth=1)
        axes.plot((left + first_seen, left + first_seen + L), (top, top - L), color="black", lw=1.2)
        rectangle(axes, left, top - L, S, L, GREY, "none", linewidth=1)

    scores(0, 6, 6, 6, 0)
    rectangle(axes, 1, 2, 1, 1, BLUE, BLUE, zorder=4)
    arrow(axes, (2.15, 2.5), (3.9, 2.5), BLUE)
    axes.text(3, 6.25, "S", ha="center", style="italic")
    axes.text(-0.35, 3, "L", ha="center", va="center", style="italic")
    for i in range(6):
        axes.text(6.25, 5.5 - i, f"{i + 1}", ha="left", va="center", fontsize=9, color=GREY)
    scores(8.2, 4.5, 1, 164 / 64, 100 / 64)
    axes.text(8.2 + 164 / 128, 4.75, "S = 164", ha="center")
    axes.text(8.05, 4, "L = 64", ha="right", va="center")
    for column, x in ((0, 8.2), (64, 9.2), (128, 10.2)):
        axes.text(x, 3.35, f"{column}", ha="center", va="top", fontsize=9, color=GREY)
    axes.set(xlim=(-0.7, 11.3), ylim=(-0.2, 6.7), aspect="equal")
    axes.axis("off")


def layout() -> None:
    """Draw the two products of a block with their sizes, and a vector: a piece of a row with WIDTH queries."""
    _, axes = plt.subplots(figsize=(8.4, 3.9))
    sizes = {"64 k": 1.4, "64 q": 1.4, "D": 2.2}
    grey = {"color": GREY, "fontsize": 9}

    def matrix(x: float, middle: float, name: str, down: str, right: str, colour: str) -> None:
        width, height = sizes[right], sizes[down]
        y = middle - height / 2
        rectangle(axes, x, y, width, height, colour)
        axes.text(x + width / 2, middle - 0.15, name, family="monospace", fontsize=9, ha="center", va="center")
        axes.text(x - 0.1, middle, down, ha="right", va="center", **grey)
        axes.text(x + width / 2, y + height + 0.08, right, ha="center", va="bottom", **grey)

    for middle, sign in ((4.6, "="), (1.4, "+=")):
        axes.text(3.45, middle, "·", ha="center", va="center", fontsize=18)
        axes.text(6.5, middle, sign, ha="center", va="center", fontsize=13)
    matrix(0.8, 4.6, "keys", "64 k", "D", GREEN)
    matrix(4.3, 4.6, "queries", "D", "64 q", BLUE)
    matrix(7.8, 4.6, "scores", "64 k", "64 q", ORANGE)
    matrix(1.2, 1.4, "values$^\\top$", "D", "64 k", GREEN)
    matrix(4.3, 1.4, "scores", "64 k", "64 q", ORANGE)
    matrix(7.8, 1.4, "out", "D", "64 q", BLUE)
    for y in (4.88, 1.9):
        rectangle(axes, 8.15, y, 0.35, 0.16, "black", "black", zorder=4)
    arrow(axes, (9.45, 5.2), (9.45, 4))
    axes.text(9.6, 4.6, "max, exp, Σ", ha="left", va="center", fontsize=9)
    axes.set(xlim=(0, 11.3), ylim=(0.1, 6.2), aspect="equal")
    axes.axis("off")


def split() -> None:
    """Draw one token, two heads of keys and four threads over time: whole heads per thread, and joined parts."""
    _, axes = plt.subplots(figsize=(7.8, 3.3))

    def row(y: float, pieces: list[tuple[str, float, str]]) -> None:
        x = 0.0
        for text, width, colour in pieces:
            rectangle(axes, x, y, width, 0.72, colour)
            axes.text(x + width / 2, y + 0.33, text, ha="center", va="center", fontsize=9)
            x += width

    row(7.2, [("0: 0 … 999", 8, BLUE)])
    row(6.3, [("1: 0 … 999", 8, ORANGE)])
    for y in (5.4, 4.5):
        rectangle(axes, 0, y, 8, 0.72, PALE, "#eeeeee", hatch="///", linewidth=0.6)
    parts = [(0, 255), (256, 511), (512, 767), (768, 999)]
    items = [
        (f"{head}: {a} … {b}", (b - a + 1) / 125, colour) for head, colour in ((0, BLUE), (1, ORANGE)) for a, b in parts
    ]
    for thread in range(4):
        row(3 - 0.9 * thread, [items[thread], items[thread + 4]])
    rectangle(axes, 4.12, 3, 0.28, 0.72, GREEN)
    axes.text(4.26, 3.33, "+", ha="center", va="center", weight="bold")
    for y, name in ((6.2, "a"), (2, "b")):
        axes.text(-0.35, y, name, ha="center", va="center", weight="bold")
    arrow(axes, (0, -0.3), (8.6, -0.3))
    axes.text(8.6, 0, "t", ha="center", style="italic")
    axes.set(xlim=(-0.6, 8.8), ylim=(-0.6, 8.1))
    axes.axis("off")


PICTURES = (online, blocks, layout, split)
