"""The pictures of week 1, day 2, drawn with numbers from the day's own class."""

import math

import matplotlib.pyplot as plt
import mlx.core as mx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Arc, Circle, Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PINK

from tiny_llm_ref.positional_encoding import RoPE


def distance() -> None:
    """Draw one pair of a query and of a key: unrotated, at positions 3 and 1, and at positions 6 and 4."""
    query, key = np.array([1.0, 0.2]), np.array([0.6, 0.75])
    rope = RoPE(2, 16, traditional=True)
    _, axes = plt.subplots(1, 3, figsize=(8, 2.9), layout="constrained")
    for panel, (p, q) in zip(axes, ((0, 0), (3, 1), (6, 4)), strict=True):
        vectors = []
        for name, vector, position, colour in (("q", query, p, ORANGE), ("k", key, q, BLUE)):
            turned = np.array(rope(mx.array(vector, mx.float32).reshape(1, 1, 1, 2), position)).reshape(2)
            vectors.append(turned)
            panel.annotate("", turned, (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2})
            panel.text(*(1.22 * turned), f"{name}, {position}", ha="center", va="center", color=colour, fontsize=11)
        ends = sorted(math.degrees(math.atan2(y, x)) for x, y in vectors)
        if ends[1] - ends[0] > 180:
            ends = [ends[1], ends[0] + 360]
        panel.add_patch(Arc((0, 0), 0.7, 0.7, theta1=ends[0], theta2=ends[1], color=GREY, lw=1.5))
        panel.add_patch(Circle((0, 0), 1, fill=False, color="#dddddd"))
        panel.set_title(f"q·k = {vectors[0] @ vectors[1]:.2f}", fontsize=11)
        panel.set(xlim=(-1.5, 1.5), ylim=(-1.45, 1.45), aspect="equal")
        panel.axis("off")


def clocks() -> None:
    """Draw a row per pair and a column per position: the hand shows where the rotation takes (1, 0)."""
    D, L, base = 8, 10, 100
    rope = RoPE(D, L, base, traditional=True)
    ahead = mx.broadcast_to(mx.array([1.0, 0.0] * (D // 2)), (1, L, 1, D))
    hands = np.array(rope(ahead)).reshape(L, D // 2, 2)
    axes = _canvas(L, D // 2, (8, 3.5))
    for position in range(L):
        axes.text(position, -0.75, str(position), ha="center", va="center", color=GREY)
        for i in range(D // 2):
            x, y = hands[position, i]
            axes.add_patch(Circle((position, i), 0.4, fill=False, color="#bbbbbb"))
            axes.plot((position, position + 0.4 * x), (i, i - 0.4 * y), color=BLUE, lw=2)  # the y axis points down
    for i in range(D // 2):
        axes.text(-0.75, i, f"i = {i}", ha="right", va="center")
        axes.text(L - 0.3, i, f"{base ** (-2 * i / D):.3g}", ha="left", va="center", color=GREY)
    axes.text(-0.75, -0.75, "p", ha="right", va="center", style="italic", color=GREY)
    axes.text(L - 0.3, -0.75, "θ", ha="left", va="center", style="italic", color=GREY)


def layouts() -> None:
    """Draw eight numbers, with the two cells of each pair in one colour."""
    D = 8
    colours = (ORANGE, BLUE, GREEN, PINK)
    axes = _canvas(D, 4.4, (6, 3))
    for top, title, pair_of in (
        (0, "traditional=True", lambda j: j // 2),
        (3, "traditional=False", lambda j: j % (D // 2)),
    ):
        axes.text(-0.9, top, title, ha="right", va="center", family="monospace", fontsize=9)
        for j in range(D):
            i = pair_of(j)
            axes.add_patch(Rectangle((j - 0.45, top - 0.4), 0.9, 0.8, facecolor=colours[i], alpha=0.4))
            axes.text(j, top, f"{'ab'[(j >= D // 2) if top else j % 2]}{i}", ha="center", va="center")
        for i in range(D // 2):
            a, b = (j for j in range(D) if pair_of(j) == i)
            height = 0.8 if top else 0.5
            axes.add_patch(Arc(((a + b) / 2, top - 0.42), b - a, height * 2, theta1=180, theta2=360, color=colours[i]))


def bases() -> None:
    """Draw the wavelength of each pair, and the score of two equal vectors of ones against their distance."""
    D, context = 128, 32768
    _, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.2), layout="constrained")
    pairs, far = np.arange(D // 2), np.unique(np.logspace(0, 4.5, 600).round())
    for base, colour, style in ((10_000, ORANGE, "--"), (1_000_000, BLUE, "-")):
        frequencies = base ** (-2 * pairs / D)
        left.semilogy(pairs, 2 * math.pi / frequencies, color=colour, ls=style, label=f"{base:,}")
        right.semilogx(far, np.cos(far[:, None] * frequencies).mean(axis=1), color=colour, ls=style, lw=1.2)
    left.axhline(context, color=GREY, lw=1, ls=":")
    left.text(0, context * 1.3, "32,768", color=GREY, fontsize=9)
    left.set(xlabel="i", ylabel="2π / θ", xticks=(0, 16, 32, 48, 63))
    left.legend(title="base", frameon=False)
    right.axhline(0, color=GREY, lw=1, ls=":")
    right.set(xlabel="m − n", ylabel="q·k / 128", ylim=(-0.3, 1.05))


def _canvas(width: float, height: float, inches: tuple[float, float]) -> Axes:
    _, axes = plt.subplots(figsize=inches)
    axes.set(xlim=(-1.5, width + 0.3), ylim=(height - 0.3, -1.1), aspect="equal")
    axes.axis("off")
    return axes


PICTURES = (distance, clocks, layouts, bases)
