"""The pictures of week 0, drawn with numbers from its own functions."""

import math

import matplotlib.pyplot as plt
import mlx.core as mx
import numpy as np
from matplotlib.axes import Axes
from style import BLUE, GREY, ORANGE

from tiny_llm_ref.foundations import dot_product_attention, scaled_dot_product_attention, softmax


def circle() -> None:
    """Draw ten vectors, and the same vectors with vector 3 five times as long; in the lower row, their weights."""
    angles = np.radians(36 * np.arange(10))
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    query = np.array([math.cos(math.pi / 4), math.sin(math.pi / 4)])
    _, axes = plt.subplots(2, 2, figsize=(8, 6.4), height_ratios=(1.6, 1), layout="constrained")
    for column, factor in enumerate((1, 5)):
        keys = vectors * np.where(np.arange(10) == 3, factor, 1)[:, None]
        output, weights = dot_product_attention(*(mx.array(x, mx.float32) for x in (query, keys, keys)))
        _arrows(axes[0, column], keys, query, np.array(output))
        colours = [ORANGE if i == 3 and factor > 1 else BLUE for i in range(10)]
        bars = axes[1, column].bar(range(10), weights.tolist(), color=colours)
        axes[1, column].bar_label(bars, fmt="%.2f", fontsize=8)
        axes[1, column].set(xticks=range(10), ylim=(0, 0.55), yticks=(0, 0.25, 0.5))


def _arrows(axes: Axes, keys: np.ndarray, query: np.ndarray, output: np.ndarray) -> None:
    """Draw the keys, which are also the values, with their numbers, and the arrows of q and o."""
    for i, (x, y) in enumerate(keys):
        long = math.hypot(x, y) > 1.5
        axes.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": ORANGE if long else BLUE})
        axes.text(
            x * (1.05 if long else 1.16), y * (1.05 if long else 1.16), str(i), ha="center", va="center", fontsize=9
        )
    for name, (x, y), colour, side in (("q", query, GREY, 0.13), ("o", output, "black", -0.13)):
        axes.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2})
        axes.text(x - side, y + side, name, ha="center", color=colour, fontsize=11, style="italic")
    reach = max(1.35, np.abs(keys).max() + 0.4)
    axes.set(xlim=(-max(1.4, reach / 2), 1.4), ylim=(-1.4, reach), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    axes.grid(alpha=0.25)


def softmax_of_scores() -> None:
    """Draw the softmax of four scores, and of the same scores divided by 8."""
    scores = mx.array([10.0, 5.0, 2.0, 1.0])
    _, axes = plt.subplots(1, 2, figsize=(8, 2.6), sharey=True)
    for panel, divisor in zip(axes, (1, 8), strict=True):
        bars = panel.bar(["10", "5", "2", "1"], softmax(scores / divisor).tolist(), color=BLUE)
        panel.bar_label(bars, fmt="%.4f", fontsize=9)
        panel.set(ylim=(0, 1.15), xlabel="x" if divisor == 1 else f"x / {divisor}", yticks=(0, 0.5, 1))
    axes[0].set_ylabel("softmax")


def dimensions() -> None:
    """Draw q.k against q's weight on a key among 16 keys: vectors of 1 and 100 numbers, with and without the scale."""
    _, axes = plt.subplots(2, 2, figsize=(8, 5.4), sharey=True, layout="constrained")
    for row, d in zip(axes, (1, 100), strict=True):
        random = np.random.default_rng(0)
        q, k = (mx.array(random.standard_normal((size, d)), mx.float32) for size in (200, 16))
        for panel, factor in zip(row, (math.sqrt(d), 1), strict=True):  # the first factor cancels the scale
            scores = q @ k.T / math.sqrt(d) * factor
            _, weights = scaled_dot_product_attention(q * factor, k, k)
            panel.scatter(
                np.array(scores).ravel(), np.array(weights).ravel(), s=3, alpha=0.3, color=BLUE, rasterized=True
            )
            panel.set(xlabel="q·k" if factor > 1 or d == 1 else "q·k / √d", title=f"d = {d}", ylim=(-0.03, 1.03))
        row[0].set_ylabel("softmax(q·k)")


PICTURES = (circle, softmax_of_scores, dimensions)
