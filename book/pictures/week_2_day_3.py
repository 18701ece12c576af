"""The pictures of week 2, day 3, with levels and words from the day's own functions."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import mlx.core as mx
import numpy as np
from matplotlib.patches import Rectangle
from style import BLUE, GREEN, GREY, ORANGE

from tiny_llm_ref.quantize import quantize

RESULTS = Path(__file__).parents[2] / "benches" / "results" / "quantisation.json"
PALE_BLUE = "#cfe3f0"


def word() -> None:
    """Draw the first word of the chapter's group: 32 bits that hold eight levels."""
    weight = mx.array([[0.7, -0.31, 0.02, 0.0, -0.8, 0.45, -0.09, 0.33, *np.linspace(-0.75, 0.65, 24)]])
    bits = f"{quantize(weight, 32)[0][0, 0].item():032b}"
    _, axes = plt.subplots(figsize=(9, 1.9))
    for place, bit in enumerate(bits):
        k = 7 - place // 4
        axes.add_patch(Rectangle((place, 0), 1, 1, facecolor=PALE_BLUE if k % 2 else "white", edgecolor=GREY))
        axes.text(place + 0.5, 0.48, bit, ha="center", va="center", fontsize=10)
    for k in range(8):
        left = 28 - 4 * k
        level = int(bits[left : left + 4], 2)
        axes.plot([left + 0.1, left + 3.9], [1.2, 1.2], color=BLUE, linewidth=1.2)
        axes.text(left + 2, 1.38, f"{level}", ha="center", va="bottom", color=BLUE, fontsize=12)
        axes.text(left + 2, -0.3, f"{level:x}", ha="center", va="top", color=ORANGE, family="monospace", fontsize=12)
        axes.text(left + 2, -1.0, f"<< {4 * k}", ha="center", va="top", color=GREY, family="monospace", fontsize=9)
    for place, name in ((0, "31"), (31, "0")):
        axes.text(place + 0.5, 2.35, name, ha="center", va="center", color=GREY, fontsize=9)
    axes.set(xlim=(-0.2, 32.2), ylim=(-1.7, 2.6))
    axes.axis("off")


def rulers() -> None:
    """Draw the numbers of a group, and three ways to place four levels."""
    numbers = np.array([-0.8, -0.61, -0.48, -0.36, -0.25, -0.17, -0.11, -0.06, 0.0, 0.05, 0.09, 0.16, 0.21, 0.28, 0.45])
    low, high = numbers.min(), numbers.max()
    step = (high - low) / 3
    rows = {
        "1": {level: -low * (level - 2) for level in (1, 2, 3)},
        "2": {level: low + step * level for level in range(4)},
        "3": {level: low - low / np.round(-low / step) * level for level in range(4)},
    }
    _, axes = plt.subplots(figsize=(8.4, 2.7))
    axes.plot([0, 0], [-0.2, 3.35], color=GREY, linestyle="--", linewidth=1, zorder=0)
    axes.plot(numbers, np.full(len(numbers), 3.0), "o", color=BLUE, markersize=5)
    for y, (name, levels) in zip((2, 1, 0), rows.items(), strict=True):
        axes.plot([min(levels.values()), max(levels.values())], [y, y], color=ORANGE, linewidth=1.4)
        for level, x in levels.items():
            axes.plot([x, x], [y - 0.17, y + 0.17], color=ORANGE, linewidth=1.8)
            back = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            axes.text(x, y - 0.3, f"{level}", ha="center", va="top", fontsize=9, color=ORANGE, bbox=back)
        axes.text(-1.05, y, name, ha="center", va="center")
    axes.text(-1.05, 3, "w", ha="center", va="center", style="italic")
    axes.text(0, 3.55, "0", ha="center", va="center", color=GREY)
    axes.set(xlim=(-1.1, 0.95), ylim=(-0.75, 3.75))
    axes.axis("off")


def bytes_of_a_group() -> None:
    """Draw the bytes of 64 weights: in bfloat16, and as levels with a scale and a bias."""
    _, axes = plt.subplots(figsize=(8.4, 2.3))
    for y, bits in enumerate((2, 4, 8, 16)):
        parts = [(64 * bits / 8, BLUE)] + ([(2, ORANGE), (2, GREEN)] if bits < 16 else [])
        x = 0.0
        for width, colour in parts:
            axes.add_patch(Rectangle((x, y - 0.32), width, 0.64, facecolor=colour, edgecolor="white", linewidth=0.8))
            x += width
        axes.text(-2, y, f"{bits}", ha="right", va="center")
        axes.text(x + 1.5, y, f"{x:.0f} B = 64 × {8 * x / 64:g} / 8", va="center", fontsize=9.5)
    axes.set(xlim=(-8, 160), ylim=(-0.6, 3.6))
    axes.axis("off")


def quality() -> None:
    """Draw the measured perplexity against the bits per weight."""
    rows = [row for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if row["only"] is None]
    _, panels = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    for axes, language in zip(panels, ("english", "japanese"), strict=True):
        dense = rows[0]["perplexity"][language]
        axes.axhline(dense, color=GREY, linestyle="--", linewidth=1)
        for size, colour, marker in ((128, ORANGE, "s"), (64, BLUE, "o"), (32, GREEN, "^")):
            of_size = [row for row in rows if row["group_size"] == size]
            x = [row["bits_per_weight"] for row in of_size]
            axes.plot(x, [row["perplexity"][language] for row in of_size], marker, color=colour, label=f"{size}")
        axes.set(xscale="log", yscale="log", title=language[:2], xlabel="b + 32 / g")
        axes.minorticks_off()
        axes.set_xticks([2, 3, 4, 5, 8], ["2", "3", "4", "5", "8"])
        axes.set_yticks([3, 10, 30, 100, 300], ["3", "10", "30", "100", "300"])
    panels[0].legend(frameon=False, title="g")


PICTURES = (word, rulers, bytes_of_a_group, quality)
