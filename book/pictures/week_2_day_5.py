"""The pictures of week 2, day 5."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse, FancyArrowPatch, Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PALE

POSITION, FREQUENCY = 40_000, 1e6 ** (-2 / 128)  # of pair 1 in a head of Qwen3
TAU = 6.283185307179586


def cell(axes: Axes, x: float, y: float, width: float, height: float, colour: str, text: str = "") -> None:
    """Draw a box whose lower left corner is (x, y)."""
    axes.add_patch(Rectangle((x, y), width, height, facecolor="white", edgecolor=colour, lw=1.5, zorder=2))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center_baseline", fontsize=9, zorder=3)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    shape = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0, "zorder": 1}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, lw=1.4, **shape))


def between() -> None:
    """Draw the products of a layer, and the operations between these products, before and after the day."""
    _, axes = plt.subplots(figsize=(9, 3.3))
    steps = [
        ("+\nnorm", 1.1, 11, 1),
        ("q k v", 1.3, 0, 0),
        ("norm\nRoPE", 1.5, 46, 4),
        ("attention", 1.7, 0, 0),
        ("o", 0.8, 0, 0),
        ("+\nnorm", 1.1, 11, 1),
        ("gate up", 1.4, 0, 0),
        ("SiLU\n×", 1.1, 3, 1),
        ("down", 1.1, 0, 0),
    ]
    x, gap, side = 0.0, 0.35, 0.2
    for name, width, before, after in steps:
        cell(axes, x, 3, width, 1, ORANGE if before else BLUE, name)
        if x:
            arrow(axes, (x - gap, 3.5), (x, 3.5), GREY)
        for count, top, colour in ((before, 2.65, PALE), (after, 0.3, ORANGE)):
            columns = 6 if count > 12 else 4
            left = x + width / 2 - min(count, columns) * side / 2
            for i in range(count):
                corner = (left + i % columns * side, top - (i // columns + 1) * side)
                axes.add_patch(Rectangle(corner, 0.8 * side, 0.8 * side, color=colour, lw=0))
        x += width + gap
    axes.text(x + 0.1, 2.1, "71", color=GREY, fontsize=13, va="center")
    axes.text(x + 0.1, 0.2, "7", color=ORANGE, fontsize=13, va="center")
    axes.plot([0, x - gap], [0.6, 0.6], color=PALE, lw=0.8, ls=":")
    axes.set(xlim=(-0.1, x + 0.8), ylim=(-0.05, 4.1), aspect="equal")
    axes.axis("off")


def journeys() -> None:
    """Draw the trips to memory for SiLU(gate) * up: eight trips for three operations, three trips for one operation."""
    _, axes = plt.subplots(figsize=(9, 2.7))

    def operation(x: float, name: str, reads: list[float], writes: float) -> None:
        width = 0.72 if len(name) == 1 else 1.7
        axes.add_patch(Ellipse((x, 2.6), width, 0.72, facecolor="white", edgecolor=ORANGE, lw=1.5, zorder=2))
        axes.text(x, 2.58, name, ha="center", va="center_baseline", fontsize=11, zorder=3)
        for place in reads:
            arrow(axes, (place, 0.7), (x + 0.22 * (place > x) - 0.22 * (place < x), 2.27), BLUE)
        arrow(axes, (x + 0.05, 2.23), (writes, 0.7), ORANGE)

    for i, name in enumerate(("gate", "σ", "SiLU", "up", "out")):
        cell(axes, 1.6 * i, 0, 1.5, 0.7, GREY, name)
    operation(1.55, "σ", [0.55], 2.1)
    operation(3.15, "×", [0.95, 2.6], 3.8)
    operation(5.6, "×", [4.2, 5.55], 7.0)
    axes.axvline(8.6, color=PALE, lw=1, ls=":")
    for i, name in enumerate(("gate", "up", "out")):
        cell(axes, 9.2 + 1.6 * i, 0, 1.5, 0.7, GREY, name)
    operation(11.55, "σ × ×", [9.95, 11.5], 13.1)
    axes.set(xlim=(-0.1, 14), ylim=(-0.1, 3.1), aspect="equal")
    axes.axis("off")


def binary(number: float, digits: int) -> tuple[str, str]:
    """Return the binary digits of a number before the point, and `digits` of them after the point."""
    scaled = f"{round(number * 2**digits):b}".zfill(digits + 1)
    return scaled[:-digits], scaled[-digits:]


def digits() -> None:
    """Draw an angle's 24 binary digits, aligned at the point: in radians, in turns, and without the whole turns."""
    _, axes = plt.subplots(figsize=(9, 2.3))
    angle = POSITION * FREQUENCY
    turns = angle / TAU
    rest = turns - round(turns)
    leading = 24 - len(f"{int(rest * 2**24):b}")  # a float spends no digits on zeros right after the point
    rows = [
        (f"{angle:,.1f} rad", *binary(angle, 24 - len(f"{int(angle):b}"))),
        (f"{turns:,.1f} × 2π", *binary(turns, 24 - len(f"{int(turns):b}"))),
        (f"{rest:.4f} × 2π", "", binary(rest, 24 + leading)[1]),
    ]
    for row, (name, whole, fraction) in enumerate(rows):
        y = 2.2 - 1.1 * row
        axes.text(-17, y + 0.35, name, ha="right", va="center_baseline", fontsize=10)
        for i, digit in enumerate(whole):
            cell(axes, i - len(whole), y, 0.9, 0.7, GREY, digit)
        for i, digit in enumerate(fraction):
            spent = bool(whole) or i >= leading
            cell(axes, i + 0.2, y, 0.9, 0.7, GREEN if spent else PALE, digit)
    axes.axvline(0.05, color=GREY, lw=1, ls=":")
    axes.set(xlim=(-23, 28), ylim=(-0.1, 3))
    axes.axis("off")


PICTURES = (between, journeys, digits)
