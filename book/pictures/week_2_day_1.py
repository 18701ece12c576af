"""The pictures of week 2, day 1."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import BLUE, GREEN, GREY, ORANGE

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
PALE_GREEN, PALE_BLUE, PALE_ORANGE = "#bfe6d9", "#cfe3f0", "#f6cfb0"


def cell(axes: Axes, x: float, y: float, face: str, edge: str = "white", text: str = "", **style: object) -> None:
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor=edge, linewidth=1.2, **style))
    axes.text(x + 0.5, y + 0.52, text, ha="center", va="center", fontsize=9)


def steps() -> None:
    """Draw the scores that each call computes, without and with a cache, for four prompt tokens and three new ones."""
    lengths = (4, 5, 6, 7)
    _, panels = plt.subplots(2, 4, figsize=(9, 5.1), layout="constrained")
    for column, S in enumerate(lengths):
        old = 0 if column == 0 else S - 1
        for row, first in enumerate((0, old)):  # first: the first query that is computed
            axes = panels[row, column]
            for j in range(S):
                stored = row == 1 and j < old
                cell(axes, j, -1.25, PALE_GREEN if stored else PALE_BLUE, text=f"k{j}".translate(SUBSCRIPTS))
            for i, j in np.ndindex(S, S):
                if i < first:
                    cell(axes, j, i, "white", "#eeeeee")
                elif j <= i:
                    cell(axes, j, i, PALE_BLUE)
                else:
                    cell(axes, j, i, "#eeeeee", hatch="///")
            for i in range(first, S):
                axes.text(-0.15, i + 0.52, f"q{i}".translate(SUBSCRIPTS), ha="right", va="center", fontsize=9)
            axes.set(xlim=(-0.9, 7), ylim=(7, -1.4), aspect="equal")
            axes.axis("off")
            axes.set_title(f"L = {S - first}, S = {S}", fontsize=10, loc="left", x=0.12)


def arrays() -> None:
    """Draw one layer's array with step 4: a prompt of three tokens, four more, two taken back, one more."""
    stages = [  # cells from the left: old, new, forgotten; capacity; description
        (0, 3, 0, 4, "store 3"),
        (3, 1, 0, 4, "store 1"),
        (4, 1, 0, 8, "store 1"),
        (5, 1, 0, 8, "store 1"),
        (4, 0, 2, 8, "trim 2"),
        (4, 1, 1, 8, "store 1"),
    ]
    _, axes = plt.subplots(figsize=(7.6, 4.6))
    for number, (old, new, forgotten, capacity, title) in enumerate(stages):
        y = 1.75 * number
        axes.text(-0.4, y + 0.5, title, ha="right", va="center", family="monospace", fontsize=10)
        grown = number == 2
        for x in range(capacity):
            if x < old:
                cell(axes, x, y, PALE_ORANGE if grown else PALE_GREEN, GREEN if not grown else ORANGE)
            elif x < old + new:
                cell(axes, x, y, BLUE)
            elif x < old + new + forgotten:
                cell(axes, x, y, "#eeeeee", GREY, hatch="///")
            else:
                cell(axes, x, y, "white", GREY, linestyle=":")
        axes.annotate(
            "", (old + new, y + 1.02), (old + new, y + 1.45), arrowprops={"arrowstyle": "-|>", "color": "black"}
        )
        axes.text(old + new + 0.15, y + 1.36, f"offset = {old + new}", ha="left", va="center", fontsize=9)
    axes.set(xlim=(-2, 8.4), ylim=(10.4, -0.2), aspect="equal")
    axes.axis("off")


def copies() -> None:
    """Draw the copied positions against the number of tokens, for three ways to grow the array."""
    n = np.arange(1, 40_961)
    ways = {"step = 1": (1, ORANGE), "step = 256": (256, BLUE)}
    _, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for name, (step, colour) in ways.items():
        grown = (n - 1) % step == 0  # the array has no room for this token
        axes.plot(n, np.cumsum(np.where(grown, n - 1, 0)), color=colour, label=name)
        axes.annotate(name, (40_960, np.where(grown, n - 1, 0).sum()), (6, 0), textcoords="offset points", va="center")
    capacity, copied, line = 0, 0, []
    for end in n:
        if end > capacity:
            capacity, copied = max(256, 2 * (end - 1)), copied + end - 1
        line.append(copied)
    axes.plot(n, line, color=GREEN)
    axes.annotate("× 2", (40_960, line[-1]), (6, 5), textcoords="offset points", va="center")
    axes.plot(n, n, color=GREY, linestyle=":")
    axes.annotate("n", (40_960, 40_960), (6, -5), textcoords="offset points", va="center", style="italic", color=GREY)
    axes.set(xscale="log", yscale="log", xlim=(100, 40_960), ylim=(100, 2e9), xlabel="n")


def ahead() -> None:
    """Draw when Python and MLX are busy in both loops. Building takes 1, computing 2, reading and printing 0.6."""
    end = 10.8
    in_turns, overlapping = [], [("build", 0.0, 1.0, 1), ("build", 1.0, 1.0, 2)]
    for n in range(1, 6):
        start, ready = 3.6 * (n - 1), 2.0 * n + 1
        in_turns += [("build", start, 1, n), ("compute", start + 1, 2, n), ("read", start + 3, 0.6, n)]
        overlapping += [("compute", ready - 2, 2, n), ("read", ready, 0.6, n), ("build", ready + 0.6, 1, n + 2)]
    _, panels = plt.subplots(2, 1, figsize=(9, 3.4), layout="constrained")
    for axes, name, bars in zip(panels, ("generate", "generate_ahead"), (in_turns, overlapping), strict=True):
        for kind, start, time, number in bars:
            row, colour = {"build": (0, BLUE), "compute": (1, ORANGE), "read": (0, GREEN)}[kind]
            shown = min(time, end - start)
            if shown > 0.3:
                axes.barh(row, shown, left=start, height=0.62, color=colour, edgecolor="white")
                axes.text(start + shown / 2, row, str(number), ha="center", va="center", color="white", fontsize=9)
        axes.set_title(name, family="monospace", fontsize=10, loc="left")
        axes.set(xlim=(0, end), ylim=(1.5, -0.5), xticks=[], yticks=(0, 1), yticklabels=("Python", "MLX"))
        axes.tick_params(length=0)
        axes.spines[["left", "bottom"]].set_visible(False)


PICTURES = (steps, arrays, copies, ahead)
