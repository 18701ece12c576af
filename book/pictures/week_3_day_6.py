"""The pictures of week 3, day 6."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PALE, PINK

RESULTS = Path(__file__).parents[2] / "benches" / "results" / "speculative.json"
PALE_GREEN, PALE_BLUE, PALE_ORANGE = "#bfe6d9", "#cfe3f0", "#f6cfb0"
COLOURS = (BLUE, GREEN, ORANGE, "#56b4e9", PINK, "#e69f00")
P = np.array([0.1, 0.4, 0.3, 0.2, 0.0])  # the probabilities of d6_proof.py
Q = np.array([0.5, 0.1, 0.1, 0.2, 0.1])


def cell(axes: Axes, x: float, y: float, text: str, face: str, edge: str = "white", **style: object) -> None:
    axes.add_patch(Rectangle((x, y), 1, 0.8, facecolor=face, edgecolor=edge, linewidth=1.2, **style))
    axes.text(x + 0.5, y + 0.4, text, ha="center", va="center", fontsize=9)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = GREY) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, color=colour, linewidth=1.2, arrowstyle="-|>", mutation_scale=10, shrinkA=0, shrinkB=0
        )
    )


def step() -> None:
    """Draw one step: four guesses of the small model, five rows of the large one, two accepted guesses."""
    _, axes = plt.subplots(figsize=(8.6, 4.6))
    guesses = ("d", "e", "f", "g")
    for x, token in enumerate("abc"):
        cell(axes, x, 5, token, PALE_GREEN if x < 2 else "white", GREEN if x < 2 else GREY)
    for i, guess in enumerate(guesses):
        cell(axes, 3 + i, 5, guess, PALE_ORANGE, ORANGE)
        arrow(axes, (2.5 + i, 5.95), (3.5 + i, 5.95), ORANGE)
        axes.text(3 + i, 6.1, f"$q_{i}$", ha="center", va="bottom", fontsize=9, color=ORANGE)
    for x, token in enumerate("abc"):
        cell(axes, x, 3, token, PALE_GREEN if x < 2 else PALE_BLUE, GREEN if x < 2 else BLUE)
    for i, guess in enumerate(guesses):
        cell(axes, 3 + i, 3, guess, PALE_BLUE, BLUE)
    for i in range(5):
        arrow(axes, (2.5 + i, 2.95), (2.5 + i, 2.35), BLUE)
        axes.text(2.5 + i, 2.3, f"$p_{i}$", ha="center", va="top", fontsize=9, color=BLUE)
    for i, (mark, colour) in enumerate((("✓", GREEN), ("✓", GREEN), ("✗", PINK))):
        axes.text(3.5 + i, 4.38, mark, ha="center", va="center", fontsize=13, color=colour, family="DejaVu Sans")
        arrow(axes, (3.5 + i, 4.93), (3.5 + i, 4.62), colour)
    for x, token in enumerate("abcde"):
        cell(axes, x, 0.4, token, PALE_GREEN, GREEN)
    cell(axes, 5, 0.4, "h", "white", GREY)
    for i, guess in enumerate(guesses[2:]):
        cell(axes, 6.6 + i, 0.4, guess, "#eeeeee", PALE, hatch="////")
    arrow(axes, (4.5, 1.75), (5.5, 1.25), BLUE)
    axes.set(xlim=(-0.3, 8.8), ylim=(0.2, 6.7), aspect="equal")
    axes.axis("off")


def proof() -> None:
    """Draw p and q of five tokens: what both have in common, where q is larger, and where p is larger."""
    _, axes = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
    x, both = np.arange(5), np.minimum(P, Q)
    axes.bar(x, both, 0.62, color=PALE_GREEN, edgecolor=GREEN, linewidth=1.3)
    axes.bar(x, np.maximum(P - Q, 0), 0.62, bottom=both, color=PALE_BLUE, edgecolor=BLUE, linewidth=1.3)
    axes.bar(x, np.maximum(Q - P, 0), 0.62, bottom=both, color="white", edgecolor=ORANGE, linewidth=1.3, hatch="///")
    for token in range(5):
        for value, name, colour, side in ((P[token], "p", BLUE, -1), (Q[token], "q", ORANGE, 1)):
            axes.plot((token - 0.36, token + 0.36), (value, value), color=colour, lw=2)
            axes.text(token + side * 0.44, value, name, ha="center", va="center", color=colour, style="italic")
    axes.set(xticks=x, ylim=(-0.01, 0.56))


def expected() -> None:
    """Draw the tokens per step against the number of guesses, for several probabilities; dotted: the limits."""
    _, axes = plt.subplots(figsize=(6.4, 3.5), layout="constrained")
    k = np.arange(0, 13)
    for a, colour in ((0.5, ORANGE), (0.7, PINK), (0.8, GREEN), (0.9, BLUE)):
        tokens = (1 - a ** (k + 1)) / (1 - a)
        axes.plot(k, tokens, color=colour, marker="o", markersize=3.5)
        axes.annotate(f"a = {a}", (12, tokens[-1]), (6, 0), textcoords="offset points", va="center", color=colour)
        if a < 0.9:
            axes.axhline(1 / (1 - a), color=colour, linestyle=":", linewidth=1)
    axes.plot(k, k + 1, color=GREY, linestyle="--", linewidth=1)
    axes.annotate("k + 1", (6.9, 7.3), (4, 0), textcoords="offset points", va="center", color=GREY)
    axes.set(xlim=(0, 12.3), ylim=(0.8, 8), xlabel="k", xticks=k[::2])


def speed() -> None:
    """Draw the measured speed-ups by probability, and the cost of a step by number of requests."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    _, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    ratios(left, found["chances"], lambda row: f"a = {row['chance']}")
    costs = {}
    for row in found["steps"]:
        costs.setdefault(row["requests"], []).append((row["guesses"], row["milliseconds"]))
    for (requests, points), colour in zip(costs.items(), COLOURS, strict=False):
        guesses, seconds = zip(*points, strict=True)
        relative = [each / seconds[0] for each in seconds]
        right.plot(guesses, relative, color=colour, marker="o", markersize=4)
        right.annotate(f"B = {requests}", (guesses[-1], relative[-1]), (5, 0), textcoords="offset points", va="center")
    right.set(xlabel="k", ylabel="×", ylim=(0, None))


def ratios(axes: Axes, rows: list[dict[str, Any]], name: Callable[[dict[str, Any]], str]) -> None:
    """Draw speed-ups against the number of requests, with one line per name."""
    cases = {}
    for row in rows:
        cases.setdefault(name(row), []).append((row["requests"], row["speed_up"]))
    for (label, points), colour in zip(cases.items(), COLOURS, strict=False):
        axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=4, label=label)
    axes.axhline(1, color=GREY, linestyle=":")
    axes.legend(fontsize=7, frameon=False, loc="upper right")
    axes.set(xscale="log", xticks=(1, 4, 16), xticklabels=("1", "4", "16"), xlabel="B", ylabel="×", ylim=(0, None))
    axes.minorticks_off()


PICTURES = (step, proof, expected, speed)
