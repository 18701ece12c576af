"""The pictures of week 2, day 6."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.ticker import FuncFormatter
from style import BLUE, GREEN, GREY, ORANGE, PALE


def area(axes: Axes, x: float, y: float, width: float, height: float, face: str, edge: str, lw: float = 1.5) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=face, edgecolor=edge, lw=lw))


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    shape = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, linewidth=1.4, **shape))


def product() -> None:
    """Draw a panel of W, a tile of x, and the tile of y that they give. y is filled panel by panel, downwards."""
    _, axes = plt.subplots(figsize=(7.6, 5))
    K, M, N, tile, panel, gap = 5.0, 3.2, 8.0, 0.8, 1.6, 0.5
    left, top = K + gap, M + gap
    area(axes, 0, 0, K, M, "white", PALE)
    area(axes, left, top, N, K * 0.62, "white", PALE)
    area(axes, left, 0, N, M, "white", PALE)
    column, row = left + panel, M - 2 * tile
    area(axes, column, top, panel, K * 0.62, ORANGE + "55", ORANGE)
    area(axes, 0, row, K, tile, BLUE + "44", BLUE)
    area(axes, left, 0, panel, M, GREEN + "22", "none")
    area(axes, column, row + tile, panel, tile, GREEN + "22", "none")
    area(axes, column, row, panel, tile, GREEN + "88", GREEN)
    for i in range(1, 4):
        axes.plot([0, K], [i * tile] * 2, color=PALE, lw=0.8, ls=":")
        axes.plot([left, left + N], [i * tile] * 2, color=PALE, lw=0.8, ls=":")
    for i in range(1, 5):
        for low, high in ((0, M), (top, top + K * 0.62)):
            axes.plot([left + i * panel] * 2, [low, high], color=PALE, lw=0.8, ls=":")
    arrow(axes, (column + panel / 2, row - 0.1), (column + panel / 2, 0.15), GREEN)
    arrow(axes, (column + panel / 2, top + K * 0.62 + 0.3), (column + 2.4 * panel, top + K * 0.62 + 0.3), ORANGE)
    for x, y, text in (
        (-0.35, M / 2, "M"),
        (K / 2, -0.35, "K"),
        (left + N / 2, -0.35, "N"),
        (left - 0.35, top + K * 0.31, "K"),
    ):
        axes.text(x, y, text, ha="center", va="center", style="italic", color=GREY)
    for x, y, text in (
        (0.35, M - 0.4, "x"),
        (left + N - 0.5, top + K * 0.62 - 0.4, "Wᵀ"),
        (left + N - 0.4, M - 0.4, "y"),
    ):
        axes.text(x, y, text, ha="center", va="center", fontsize=13)
    axes.text(column + panel / 2, top + K * 0.31, "32", ha="center", va="center", color="black")
    axes.text(K / 2, row + tile / 2, "8", ha="center", va="center", color="black")
    axes.text(column + panel / 2, row + tile / 2, "8 x 32", ha="center", va="center", color="black")
    axes.set(xlim=(-0.6, left + N + 0.1), ylim=(-0.6, top + K * 0.62 + 0.6), aspect="equal")
    axes.axis("off")


def step() -> None:
    """Draw one step of a tile: numbers of x, two vectors of w, and the sixteen sums that the products are added to."""
    _, axes = plt.subplots(figsize=(7.8, 4.4))
    wide, high = 4.2, 0.46
    for j in range(2):
        x = 2 + j * (wide + 0.35)
        area(axes, x, 4.6, wide, high, ORANGE + "55", ORANGE)
        for lane in range(1, 16):
            axes.plot([x + lane * wide / 16] * 2, [4.6, 4.6 + high], color=ORANGE, lw=0.5)
        axes.text(x + wide / 2, 4.6 + high + 0.25, f"load(w + {16 * j})" if j else "load(w)", **_code(ORANGE))
        for i in range(8):
            y = 3.7 - i * (high + 0.07)
            area(axes, x, y, wide, high, GREEN + "33", GREEN)
            for lane in range(1, 16):
                axes.plot([x + lane * wide / 16] * 2, [y, y + high], color=GREEN, lw=0.35, alpha=0.6)
            axes.text(x + wide / 2, y + high / 2, f" sums[{i}][{j}] ", **_code("black"), bbox=_BACK)
        arrow(axes, (x + wide / 2, 4.52), (x + wide / 2, 4.24), ORANGE)
    for i in range(8):
        y = 3.7 - i * (high + 0.07)
        area(axes, 0.5, y, 0.75, high, BLUE + "44", BLUE)
        axes.text(0.875, y + high / 2, f"x[{i}]", **_code("black"))
        arrow(axes, (1.3, y + high / 2), (1.92, y + high / 2), BLUE)
    axes.set(xlim=(0.3, 2 + 2 * wide + 0.5), ylim=(-0.1, 5.5))
    axes.axis("off")


_BACK = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}


def _code(colour: str) -> dict[str, object]:
    return {"ha": "center", "va": "center", "family": "monospace", "fontsize": 8.5, "color": colour}


def share() -> None:
    """Draw which share of the operations is useful against the rows of x, for both orders of loops."""
    _, axes = plt.subplots(figsize=(7.4, 3.6))
    M = np.arange(1, 513)
    tiles = -(-M // 8)
    for panels, colour, name, place in ((tiles * 0 + 1, BLUE, "a", (150, 79)), (tiles, ORANGE, "b", (150, 47.5))):
        axes.plot(M, 100 * M / (8 * tiles + 10 * panels), color=colour, lw=1.6)
        axes.text(*place, name, color=colour, weight="bold", ha="center", va="bottom")
    axes.axhline(100, color=GREY, lw=0.9, ls=":")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.set(xlim=(1, 512), ylim=(0, 108), xlabel="M", xticks=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512])


PICTURES = (product, step, share)
