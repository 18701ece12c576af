"""The pictures of week 2, day 4."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PALE, PINK


def cell(
    axes: Axes, x: float, y: float, text: str, colour: str, width: float = 1, height: float = 0.8, fill: str = "white"
) -> None:
    axes.add_patch(Rectangle((x, y), width, height, facecolor=fill, edgecolor=colour, lw=1.4, zorder=2))
    axes.text(x + width / 2, y + height / 2 - 0.03, text, ha="center", va="center", fontsize=9, zorder=3)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, width: float = 1.3) -> None:
    shape = {"arrowstyle": "-|>", "mutation_scale": 12, "shrinkA": 0, "shrinkB": 0, "zorder": 4}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, linewidth=width, **shape))


def ways() -> None:
    """Draw the bits per weight between memory and processor: dense weights, dequantised weights, packed weights."""
    _, axes = plt.subplots(figsize=(7.6, 2.5))
    rows = ((2.2, "a", [(16, BLUE)]), (1.1, "b", [(4.5, BLUE), (16, ORANGE), (16, BLUE)]), (0, "c", [(4.5, BLUE)]))
    for y, name, parts in rows:
        axes.text(-1, y + 0.35, name, ha="center", va="center", weight="bold")
        x = 0.0
        for bits, colour in parts:
            axes.add_patch(Rectangle((x, y), bits, 0.7, facecolor=colour, alpha=0.16, lw=0))
            axes.add_patch(Rectangle((x, y), bits, 0.7, facecolor="none", edgecolor=colour, lw=1.5))
            middle = x + bits / 2
            axes.text(middle - 0.35, y + 0.33, f"{bits:g}", ha="right", va="center", fontsize=10)
            ends = ((middle + 0.55, y + 0.6), (middle + 0.55, y + 0.1))
            arrow(axes, *(ends if colour == BLUE else ends[::-1]), colour)
            x += bits
        axes.text(x + 0.6, y + 0.33, f"{x:g}", ha="left", va="center", color=GREY)
    axes.set(xlim=(-1.6, 40), ylim=(-0.15, 3.05))
    axes.axis("off")


def block() -> None:
    """Draw four words of eight levels, and the order in which x is multiplied by their fields."""
    _, axes = plt.subplots(figsize=(8.2, 3.4))
    colours = {0: BLUE, 1: ORANGE, 2: GREEN, 7: PINK}
    for word in range(4):
        y = 2.4 - word
        for j in range(8):
            cell(axes, 7 - j, y, f"{word * 8 + j}", colours.get(j, PALE))
        axes.text(-0.35, y + 0.38, f"{word}", ha="right", va="center", color=GREY, fontsize=9)
    for j in range(8):
        axes.text(7.5 - j, 3.45, f"{j}", ha="center", va="center", color=GREY, fontsize=9)
        cell_y = 3.2 - 0.62 * j
        for word in range(4):
            cell(axes, 11.2 + word, cell_y - 0.42, f"{word * 8 + j}", colours.get(j, PALE), height=0.52)
        axes.text(10.95, cell_y - 0.18, f"{j}", ha="right", va="center", color=GREY, fontsize=9)
    axes.text(4, 4.05, "W", ha="center", va="center", style="italic", fontsize=12)
    axes.text(13.2, 4.05, "x", ha="center", va="center", style="italic", fontsize=12)
    axes.set(xlim=(-1, 15.4), ylim=(-1.9, 4.4))
    axes.axis("off")


def scales() -> None:
    """Draw sixteen words of a block and their groups: 4 bits per weight, in groups of 32, 64 and 128."""
    _, axes = plt.subplots(figsize=(7.8, 2))
    fills = ("#d9eaf5", "#f9e0d2", "#d3eee5", "#f6e6ef")
    edges = (BLUE, ORANGE, GREEN, PINK)
    for y, size in ((2, 32), (1, 64), (0, 128)):
        words = size // 8
        for lane in range(16):
            group = lane // words
            cell(axes, lane, y, f"$s_{group}$", edges[group], height=0.72, fill=fills[group])
        axes.text(-0.4, y + 0.34, f"{size}", ha="right", va="center", color=GREY)
    for lane in range(16):
        axes.text(lane + 0.5, 3, f"{lane}", ha="center", va="center", color=GREY, fontsize=8.5)
    axes.set(xlim=(-1.6, 16.2), ylim=(-0.1, 3.3))
    axes.axis("off")


def strips() -> None:
    """Draw the rows of W in two parts, each in strips that are multiplied by every row of x."""
    _, axes = plt.subplots(figsize=(7.8, 3.4))
    for part, colour in ((0, BLUE), (1, ORANGE)):
        for strip in range(4):
            y = 5.4 - 0.62 * (part * 4 + strip)
            now = (part, strip) in ((0, 1), (1, 0))
            axes.add_patch(
                Rectangle(
                    (0, y), 6, 0.56, facecolor=colour, alpha=0.3 if now else 0.07 if strip or part else 0.14, lw=0
                )
            )
            axes.add_patch(Rectangle((0, y), 6, 0.56, facecolor="none", edgecolor=colour, lw=1.3))
            for m in range(3):
                done = part == 0 and strip == 0
                axes.add_patch(
                    Rectangle(
                        (14.6 + m * 0.75, y),
                        0.65,
                        0.56,
                        facecolor=colour if done or (now and m == 0) else "white",
                        alpha=0.45 if done or (now and m == 0) else 1,
                        edgecolor=colour,
                        lw=1,
                    )
                )
    for m in range(3):
        cell(axes, 7.2, 4.4 - m * 0.75, "", GREEN, width=6, height=0.5)
    arrow(axes, (6.1, 5.05), (7.1, 4.75), BLUE)
    arrow(axes, (6.1, 3.2), (7.1, 4.5), ORANGE)
    for x, name in ((3, "W"), (10.2, "x"), (15.7, "y")):
        axes.text(x, 6.3, name, ha="center", va="center", style="italic", fontsize=12)
    axes.set(xlim=(-0.3, 17), ylim=(0.8, 6.7))
    axes.axis("off")


PICTURES = (ways, block, scales, strips)
