"""The pictures of week 2, day 2."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.ticker import FuncFormatter
from style import BLUE, GREEN, GREY, ORANGE, PALE

from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B
from tiny_llm_ref.costs import Cost, Machine, model_cost

MACHINE = Machine(peak=1100e9, bandwidth=90e9)
CONFIG = ModelConfig.from_hf(QWEN3_0_6B)


def requests(B: int, S: int, bits: float) -> Cost:
    """Return the cost of a step with one token for each of B requests."""
    one, weights = model_cost(CONFIG, 1, S, bits / 8), model_cost(CONFIG, 1, S, bits / 8).bytes
    cache = S * (model_cost(CONFIG, 1, 2).bytes - model_cost(CONFIG, 1, 1).bytes)
    return Cost(B * one.operations, weights + (B - 1) * cache)


def roof() -> None:
    """Draw the roofline, and five passes under it by their intensity."""
    _, axes = plt.subplots(figsize=(7.4, 4))
    x = np.geomspace(0.5, 1000, 300)
    axes.fill_between(x, np.minimum(MACHINE.peak, MACHINE.bandwidth * x) / 1e9, 10, color=BLUE, alpha=0.07, lw=0)
    axes.loglog(x, np.minimum(MACHINE.peak, MACHINE.bandwidth * x) / 1e9, color=BLUE, lw=2.2)
    axes.axvline(MACHINE.ridge, ymax=0.93, color=GREY, lw=0.9, ls=":")
    axes.text(MACHINE.ridge, 11, f" {MACHINE.ridge:.1f}", color=GREY)
    axes.text(500, 1230, "1,100 GFLOP/s", color=BLUE, ha="center", va="bottom")
    axes.text(1.9, 215, "90 GB/s", color=BLUE, ha="center", va="bottom", rotation=38)
    cases = [
        (requests(1, 513, 16), 1, GREEN),
        (requests(1, 513, 4.5), 1, ORANGE),
        (requests(16, 513, 16), 16, GREEN),
        (requests(16, 513, 4.5), 16, ORANGE),
        (model_cost(CONFIG, 128, 128, 2), 128, GREEN),
        (model_cost(CONFIG, 128, 128, 4.5 / 8), 128, ORANGE),
    ]
    for number, (cost, tokens, colour) in enumerate(cases, start=1):
        seconds = MACHINE.seconds(cost)
        place = (cost.intensity, cost.operations / seconds / 1e9)
        axes.plot(*place, "o", ms=15, color=colour, zorder=3)
        axes.annotate(str(number), place, ha="center", va="center_baseline", color="white", fontsize=9, zorder=4)
        beside = {"xytext": (0, -21), "ha": "center"} if cost.intensity > 50 else {"xytext": (12, -9), "ha": "left"}
        if number == 3:
            beside = {"xytext": (-12, 2), "ha": "right"}
        axes.annotate(f"{tokens / seconds:,.0f} tok/s", place, textcoords="offset points", fontsize=8.5, **beside)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set(xlim=(0.5, 1000), ylim=(10, 2200), xlabel="FLOP/B", ylabel="GFLOP/s")


def box(
    axes: Axes, x: float, y: float, text: str, colour: str, width: float, height: float = 0.62, line: str = "-"
) -> None:
    """Draw a box centred at (x, y)."""
    style = {"boxstyle": "round,pad=0,rounding_size=0.1", "facecolor": "white", "edgecolor": colour, "linewidth": 1.6}
    axes.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, linestyle=line, **style))
    axes.text(x, y, text, ha="center", va="center", color="black", family="monospace", fontsize=9)


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = GREY, line: str = "-"
) -> None:
    shape = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0, "zorder": 0}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, linestyle=line, linewidth=1.3, **shape))


def anatomy() -> None:
    """Draw the way of a call from Python to a loop in C++, and the fallback next to it."""
    _, axes = plt.subplots(figsize=(8.2, 3.1))
    box(axes, 1.3, 1.6, "softmax(x)\nsoftmax.py", BLUE, 2.1, 0.8)
    box(axes, 4.6, 1.6, "Kernel, eval_cpu\nmlx_extension.cpp", GREY, 2.5, 0.8)
    box(axes, 8.1, 1.6, "KERNEL(softmax)\nsoftmax.cpp", ORANGE, 2.4, 0.8)
    box(axes, 1.3, 0.2, "fallback.softmax(x)\nfallback.py", BLUE, 2.1, 0.8, "--")
    box(axes, 8.1, 0.2, "vector.h, kernel.h", ORANGE, 2.4, 0.6)
    box(axes, 4.6, 0.2, "pool.h", GREY, 2.5, 0.6)
    arrow(axes, (2.4, 1.6), (3.3, 1.6))
    arrow(axes, (5.9, 1.6), (6.85, 1.6))
    arrow(axes, (1.3, 1.15), (1.3, 0.65), line="--")
    arrow(axes, (8.1, 1.15), (8.1, 0.55))
    arrow(axes, (6.85, 1.3), (5.9, 0.45))
    axes.text(2.85, 1.72, "mx.array", ha="center", va="bottom", fontsize=8.5, family="monospace", color=GREY)
    axes.text(6.37, 1.72, "float*", ha="center", va="bottom", fontsize=8.5, family="monospace", color=GREY)
    axes.axvline(3.1, color=PALE, lw=1, ls=":", ymin=0.03, ymax=0.72)
    axes.axvline(6.6, color=PALE, lw=1, ls=":", ymin=0.03, ymax=0.72)
    for x, name in ((1.3, "Python"), (4.6, "C++, MLX"), (8.1, "C++")):
        axes.text(x, 2.42, name, ha="center", color=GREY)
    axes.set(xlim=(0.1, 9.5), ylim=(-0.3, 2.75))
    axes.axis("off")


def lanes() -> None:
    """Draw how nineteen numbers are summed: two vectors of eight, added lane by lane, then the three others."""
    _, axes = plt.subplots(figsize=(7.6, 3.2))

    def cell(x: float, y: float, text: str, colour: str) -> None:
        axes.add_patch(Rectangle((x, y), 1, 0.7, facecolor="white", edgecolor=colour, lw=1.5, zorder=2))
        axes.text(x + 0.5, y + 0.33, text, ha="center", va="center", fontsize=9, zorder=3)

    for i in range(8):
        cell(i, 3, f"{i}", BLUE)
        cell(i, 2.2, f"{i + 8}", BLUE)
        arrow(axes, (i + 0.5, 2.2), (i + 0.5, 1.35), BLUE)
        cell(i, 0.6, f"{i} + {i + 8}", GREEN)
    for i in range(16, 19):
        cell(i - 7, 2.2, f"{i}", GREY)
        arrow(axes, (i - 6.5, 2.2), (10.3 + 0.2 * (i - 16), 1.35), GREY)
    cell(10, 0.6, "Σ", ORANGE)
    arrow(axes, (8, 0.95), (9.95, 0.95), GREEN)
    axes.set(xlim=(-0.1, 12.1), ylim=(0.5, 3.8), aspect="equal")
    axes.axis("off")


def parts() -> None:
    """Draw the time of rows in parts: one thread, two threads, two with one held up, and too little work for two."""
    _, axes = plt.subplots(figsize=(8.4, 3.5))

    def work(x: float, y: float, width: float, text: str, colour: str) -> None:
        axes.add_patch(Rectangle((x, y), width, 0.7, facecolor="white", edgecolor=colour, lw=1.5))
        axes.text(x + width / 2, y + 0.32, text, ha="center", va="center", fontsize=8.5)

    def wait(x: float, y: float, width: float) -> None:
        axes.add_patch(Rectangle((x, y), width, 0.7, facecolor="#eeeeee", edgecolor=PALE, hatch="///", lw=0.6))

    for i in range(8):
        work(i, 6.2, 1, str(i), BLUE)
    wait(0, 4, 0.35)
    for i, number in enumerate((1, 3, 5, 7)):
        work(0.35 + i, 4, 1, str(number), ORANGE)
    for i, number in enumerate((0, 2, 4, 6)):
        work(i, 4.8, 1, str(number), BLUE)
    wait(0, 1.8, 0.35)
    work(0.35, 1.8, 1, "1", ORANGE)
    wait(1.35, 1.8, 2.2)
    work(3.55, 1.8, 1, "5", ORANGE)
    work(4.55, 1.8, 1, "7", ORANGE)
    for i, number in enumerate((0, 2, 3, 4, 6)):
        work(i, 2.6, 1, str(number), BLUE)
    work(0, 0.4, 0.2, "", BLUE)
    wait(0, -0.4, 0.35)
    work(0.35, -0.4, 0.2, "", ORANGE)
    for y, name in ((6.55, "a"), (4.75, "b"), (2.55, "c"), (0.35, "d")):
        axes.text(-0.45, y, name, ha="center", va="center", weight="bold")
    arrow(axes, (0, -1), (8.6, -1))
    axes.text(8.6, -0.75, "t", ha="center", style="italic")
    axes.set(xlim=(-0.8, 8.8), ylim=(-1.3, 7.2))
    axes.axis("off")


PICTURES = (roof, anatomy, lanes, parts)
