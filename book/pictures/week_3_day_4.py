"""The pictures of week 3, day 4."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PALE, PINK

LIGHT = {BLUE: "#cfe3f0", ORANGE: "#f6cfb0", GREEN: "#bfe6d9", PINK: "#f1d5e4", GREY: "#eeeeee"}


def box(axes: Axes, x: float, y: float, width: float, height: float, colour: str, **style: object) -> None:
    style = {"facecolor": LIGHT.get(colour, "white"), "linewidth": 1.1, **style}
    axes.add_patch(Rectangle((x, y), width, height, edgecolor=colour, **style))


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = GREY, **style: object
) -> None:
    shape = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.3, "zorder": 5}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, **(shape | style)))


def gather() -> None:
    """Draw the bytes that are moved in the step of d4_bytes.py: with two copies, and through the table."""
    _, axes = plt.subplots(figsize=(8.6, 3.1))
    pages = ((0, 0), (1.1, 0.45), (0.2, 1.1))

    def scattered(x: float, y: float) -> None:
        for dx, dy in pages:
            box(axes, x + dx, y + dy, 0.9, 0.5, BLUE)

    def whole(x: float, y: float) -> None:
        for i in range(3):
            box(axes, x + 0.6 * i, y, 0.6, 0.6, ORANGE)

    def moved(x: float, y: float, width: float, text: str) -> None:
        arrow(axes, (x, y), (x + width, y))
        axes.text(x + width / 2, y + 0.1, text, ha="center", va="bottom", fontsize=9)

    scattered(0, 2.4)
    for x in (3.8, 7.6):
        whole(x, 2.9)
    for x, text in ((2.2, "940 + 940"), (6.0, "940 + 940"), (9.8, "918")):
        moved(x, 3.2, 1.4, text)
    scattered(0, 0)
    moved(2.2, 0.8, 9.0, "918")
    for y in (3.2, 0.8):
        box(axes, 11.4, y - 0.45, 1.6, 0.9, GREEN)
        axes.text(12.2, y, "q · k, v", ha="center", va="center", fontsize=9)
    axes.set(xlim=(-0.2, 13.2), ylim=(-0.2, 4.3), aspect="equal")
    axes.axis("off")


def find() -> None:
    """Draw how a table leads to the row of position 6, in pages of four positions and two heads."""
    table, page_size, heads, length = [2, 0, 3], 4, 2, 9
    _, axes = plt.subplots(figsize=(8.4, 4.7))
    for i, page in enumerate(table):
        y = 1.2 + 1.1 * i
        colour = ORANGE if i == 1 else BLUE
        box(axes, 0, y, 1.3, 0.9, colour)
        axes.text(0.65, y + 0.47, str(page), ha="center", va="center")
        axes.text(-0.25, y + 0.47, str(i), ha="right", va="center", fontsize=9, color=GREY)
    left, width, height = 5.2, 1.7, 0.62
    for page in range(4):
        for head in range(heads):
            y = 0.3 + page * 1.55 + head * height
            for place in range(page_size):
                row = (page * heads + head) * page_size + place
                position = table.index(page) * page_size + place if page in table else length
                found, used = (page, head, place) == (0, 1, 2), position < length
                colour = ORANGE if found else BLUE if used else PALE
                x = left + width * place
                box(axes, x, y, width, height, colour, zorder=3 if found else 1)
                if used:
                    axes.text(
                        x + 0.5, y + height / 2 + 0.02, str(position), ha="center", va="center", fontsize=9, zorder=4
                    )
                axes.text(
                    x + width - 0.12,
                    y + height / 2,
                    str(row),
                    ha="right",
                    va="center",
                    fontsize=7,
                    color=GREY,
                    zorder=4,
                )
            axes.text(left - 0.15, y + height / 2, f"h {head}", ha="right", va="center", fontsize=8, color=GREY)
        axes.text(left - 1.0, 0.3 + page * 1.55 + height, str(page), ha="right", va="center")
    arrow(axes, (1.4, 1.2 + 1.1 + 0.45), (left - 1.35, 0.3 + height), ORANGE)
    y = 0.3 + 2 * height + 0.13
    arrow(axes, (left + 2 * width, y), (left + 4 * width, y), ORANGE, arrowstyle="<|-|>", mutation_scale=8)
    axes.text(left + 4 * width + 0.15, y, "2", va="center", fontsize=9, color=ORANGE)
    axes.set(xlim=(-0.8, 12.6), ylim=(6.6, 0))
    axes.axis("off")


def items() -> None:
    """Draw what four threads do in a step: parts of two requests' keys, and blocks of a third request's queries."""
    _, axes = plt.subplots(figsize=(8.6, 2.9))
    work: list[tuple[str, float, str]] = []  # in the order of the kernel's list
    for colour, length in ((BLUE, 700), (ORANGE, 300)):
        for first in range(0, length, 256):
            work += [(f"{head}: {first}", min(256, length - first) / 128, colour) for head in range(2)]
    for head in range(4):
        work += [(f"{head}: {first}", (first + 64) / 64 * 1.1, GREEN) for first in (0, 64)]
    ends = [0.0] * 4
    for text, width, colour in reversed(work):  # threads take the last items first
        thread = ends.index(min(ends))
        x, y = ends[thread], 3 - thread
        box(axes, x, y, width, 0.72, colour)
        if width > 0.8:
            axes.text(x + width / 2, y + 0.34, text, ha="center", va="center", fontsize=9)
        ends[thread] += width
    x = max(ends) + 0.1
    box(axes, x, 3, 0.3, 0.72, PINK)
    axes.text(x + 0.15, 3.34, "+", ha="center", va="center", weight="bold")
    arrow(axes, (0, -0.25), (x + 0.9, -0.25))
    axes.text(x + 0.9, 0.0, "t", ha="center", style="italic")
    axes.set(xlim=(-0.2, x + 1.1), ylim=(-0.6, 4))
    axes.axis("off")


def lanes() -> None:
    """Draw a simdgroup and 32 keys: each lane looks up one key, then all lanes share each row."""
    _, axes = plt.subplots(figsize=(8.6, 4.0))
    shown = 8
    rows = [44, 45, 46, 47, 12, 13, 14, 15]
    for lane, row in enumerate(rows):
        colour = BLUE if row > 40 else ORANGE
        x = 1.05 * lane
        box(axes, x, 5.2, 0.9, 0.6, GREY)
        axes.text(x + 0.45, 5.5, str(lane), ha="center", va="center", fontsize=9)
        arrow(axes, (x + 0.45, 5.15), (x + 0.45, 4.45), colour, mutation_scale=8)
        box(axes, x, 3.8, 0.9, 0.6, colour)
        axes.text(x + 0.45, 4.1, str(row), ha="center", va="center", fontsize=9)
    axes.text(1.05 * shown + 0.3, 5.5, "… 31", va="center")
    axes.text(1.05 * shown + 0.3, 4.1, "…", va="center")
    axes.text(-0.3, 5.5, "lane", ha="right", va="center", fontsize=9, color=GREY)
    axes.text(-0.3, 4.1, "row", ha="right", va="center", fontsize=9, color=GREY)
    for y, row, colour in ((2.4, 46, BLUE), (1.3, 47, BLUE), (0.2, 12, ORANGE)):
        axes.text(-0.3, y + 0.3, str(row), ha="right", va="center", fontsize=9)
        for lane in range(shown):
            box(axes, 1.05 * lane, y, 1.05, 0.6, colour)
            axes.text(1.05 * lane + 0.525, y + 0.3, str(lane), ha="center", va="center", fontsize=9)
        axes.text(1.05 * shown + 0.3, y + 0.3, "…", va="center")
    axes.set(xlim=(-1.4, 10.2), ylim=(0, 6))
    axes.axis("off")


PICTURES = (gather, find, items, lanes)
