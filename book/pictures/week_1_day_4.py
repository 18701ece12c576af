"""The pictures of week 1, day 4, drawn with numbers from the day's own functions."""

import matplotlib.pyplot as plt
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from style import BLUE, GREEN, GREY, ORANGE

from tiny_llm_ref.basics import silu
from tiny_llm_ref.layer_norm import RMSNorm


def norms() -> None:
    """Draw six vectors of two numbers: unchanged, after RMSNorm and after LayerNorm."""
    points = mx.array([[3.0, 0.6], [2.2, 2.9], [-0.2, 0.9], [-2.5, 0.8], [-0.4, -0.7], [2.0, -2.2]])
    after = [points, RMSNorm(2, mx.ones(2))(points), nn.LayerNorm(2)(points)]
    _, panels = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    for axes, vectors, title in zip(panels, after, ("x", "RMSNorm(x)", "LayerNorm(x)"), strict=True):
        if title == "RMSNorm(x)":
            axes.add_patch(Circle((0, 0), np.sqrt(2), fill=False, color=GREY, linestyle="--"))
        if title == "LayerNorm(x)":
            axes.axline((1, -1), (-1, 1), color=GREY, linestyle="--", linewidth=1)
        places: dict[tuple[float, float], list[str]] = {}
        for number, (x, y) in enumerate(vectors.tolist(), start=1):
            places.setdefault((round(x, 2), round(y, 2)), []).append(str(number))
        for (x, y), numbers in places.items():
            arrow(axes, (0, 0), (x, y), BLUE)
            far = 1 + (0.42 if len(numbers) == 1 else 0.8) / np.hypot(x, y)
            back = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.0 if len(numbers) == 1 else 1.0}
            axes.text(far * x, far * y, ", ".join(numbers), ha="center", va="center", color=BLUE, bbox=back)
        axes.set(xlim=(-3.4, 3.6), ylim=(-3, 3.6), aspect="equal", title=title, xticks=(-2, 0, 2), yticks=(-2, 0, 2))
        axes.grid(alpha=0.25)


def curves() -> None:
    """Draw SiLU and its two factors, x and sigmoid(x)."""
    x = mx.arange(-6, 4, 0.05)
    _, axes = plt.subplots(figsize=(6.4, 3))
    for y, colour, line, name in (
        (nn.relu(x), GREY, "--", "ReLU"),
        (mx.sigmoid(x), GREEN, ":", "sigmoid"),
        (silu(x), BLUE, "-", "SiLU"),
    ):
        axes.plot(x.tolist(), y.tolist(), color=colour, linestyle=line, label=name)
    axes.plot(-1.278, -0.278, "o", color=BLUE)
    axes.text(-1, -0.45, "(−1.278, −0.278)", va="center", color=BLUE)
    axes.set(ylim=(-0.6, 4), xlim=(-6, 4))
    axes.spines[["top", "right"]].set_visible(False)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.legend(frameon=False, loc="upper left")


def swiglu() -> None:
    """Draw how x goes through gate and up, and their product through down."""
    _, axes = plt.subplots(figsize=(8.4, 2.6))
    box(axes, 0.5, 1, 0.7, "x", "E", "black", 0.7)
    box(axes, 2.6, 1.75, 1.5, "gate_proj", "I × E", BLUE)
    box(axes, 2.6, 0.25, 1.5, "up_proj", "I × E", BLUE)
    box(axes, 4.75, 1.75, 0.9, "SiLU", "", ORANGE)
    box(axes, 6, 1, 0.5, "×", "I", GREEN, 0.55)
    box(axes, 7.7, 1, 1.5, "down_proj", "E × I", BLUE)
    for start, end in (
        ((0.85, 1.1), (1.83, 1.7)),
        ((0.85, 0.9), (1.83, 0.3)),
        ((3.35, 1.75), (4.28, 1.75)),
        ((5.2, 1.7), (5.76, 1.18)),
        ((3.35, 0.25), (5.76, 0.85)),
        ((6.26, 1), (6.93, 1)),
        ((8.45, 1), (9.1, 1)),
    ):
        arrow(axes, start, end, GREY)
    axes.text(9.25, 1, "E", ha="center", va="center", style="italic", color=GREY)
    axes.set(xlim=(0, 9.5), ylim=(-0.35, 2.3), aspect="equal")
    axes.axis("off")


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    shape = {"arrowstyle": "-|>", "mutation_scale": 12, "shrinkA": 0, "shrinkB": 0}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, **shape))


def box(axes: Axes, x: float, y: float, width: float, name: str, size: str, colour: str, height: float = 0.6) -> None:
    """Draw a box centred at (x, y), with a size under it."""
    style = {"boxstyle": "round,pad=0,rounding_size=0.1", "facecolor": "white", "edgecolor": colour, "linewidth": 1.8}
    axes.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, **style))
    axes.text(x, y, name, ha="center", va="center", color=colour)
    axes.text(x, y - height / 2 - 0.2, size, ha="center", va="center", style="italic", color=GREY, fontsize=10)


PICTURES = (norms, curves, swiglu)
