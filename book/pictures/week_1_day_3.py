"""The pictures of week 1, day 3."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from style import BLUE, GREEN, GREY, ORANGE

from tiny_llm_ref.attention import causal_mask

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def box(axes: Axes, x: float, y: float, text: str, colour: str, width: float = 0.62, height: float = 0.42) -> None:
    """Draw a box centred at (x, y)."""
    corner = (x - width / 2, y - height / 2)
    style = {"boxstyle": "round,pad=0,rounding_size=0.08", "facecolor": "white", "edgecolor": colour, "linewidth": 1.6}
    axes.add_patch(FancyBboxPatch(corner, width, height, **style))
    axes.text(x, y, text, ha="center", va="center_baseline", color=colour)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, line: str = "-") -> None:
    shape = {"arrowstyle": "-|>", "mutation_scale": 10, "shrinkA": 0, "shrinkB": 0, "zorder": 0}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, linestyle=line, linewidth=1.3, **shape))


def training() -> None:
    """Draw five tokens: what each position is to predict, and which tokens it may and may not read."""
    _, axes = plt.subplots(figsize=(7.2, 3))
    for i in range(5):
        for j in range(i + 1):
            arrow(axes, (1.5 * j, 0.22), (1.5 * i, 1.28), BLUE)
        if i < 4:
            arrow(axes, (1.5 * (i + 1), 0.22), (1.5 * i + 0.1, 1.28), ORANGE, "--")
        box(axes, 1.5 * i, 0, f"t{i}".translate(SUBSCRIPTS), "black")
        box(axes, 1.5 * i, 1.5, "", BLUE)
        arrow(axes, (1.5 * i, 1.72), (1.5 * i, 2.14), GREY)
        axes.text(1.5 * i, 2.3, f"t{i + 1} ?".translate(SUBSCRIPTS), ha="center", va="center")
    for y, name in ((0, "S"), (1.5, "L")):
        axes.text(-0.75, y, name, ha="center", va="center", style="italic", color=GREY)
    axes.set(xlim=(-1, 6.5), ylim=(-0.35, 2.5), aspect="equal")
    axes.axis("off")


def mask() -> None:
    """Draw the masks of a prompt, of the next chunk, and of one token: each is the last rows of a square."""
    S = 6
    _, panels = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    for axes, L in zip(panels, (6, 2, 1), strict=True):
        hidden = np.isneginf(np.array(causal_mask(L, S)))
        for i, j in np.ndindex(L, S):
            y = S - L + i
            face, hatch = ("#eeeeee", "///") if hidden[i, j] else ("#cfe3f0", None)
            axes.add_patch(Rectangle((j, y), 1, 1, facecolor=face, hatch=hatch, edgecolor="white"))
            text, colour = ("−∞", ORANGE) if hidden[i, j] else ("0", BLUE)
            axes.text(j + 0.5, y + 0.52, text, ha="center", va="center", color=colour, fontsize=10)
        axes.text(S / 2, S - L - 0.35, f"L = {L}, S = {S}", ha="center")
        axes.set(xlim=(0, S), ylim=(S, -0.9), aspect="equal")
        axes.set_xticks(np.arange(S) + 0.5, [f"k{j}".translate(SUBSCRIPTS) for j in range(S)])
        axes.set_yticks(np.arange(S - L, S) + 0.5, [f"q{i}".translate(SUBSCRIPTS) for i in range(S - L, S)])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)


def groups() -> None:
    """Draw four query heads that share 4, 2 and 1 key/value heads."""
    _, panels = plt.subplots(1, 3, figsize=(8.4, 2.5), layout="constrained")
    for axes, H_kv in zip(panels, (4, 2, 1), strict=True):
        middles = [(group + 0.5) * 4 / H_kv - 0.5 for group in range(H_kv)]
        for group, x in enumerate(middles):
            box(axes, x, 0.22, f"k{group} v{group}".translate(SUBSCRIPTS), GREEN, 0.86)
        for h in range(4):
            arrow(axes, (h, 1.03), (middles[h // (4 // H_kv)], 0.45), GREY)
            box(axes, h, 1.25, f"q{h}".translate(SUBSCRIPTS), BLUE, 0.7)
        axes.set(xlim=(-0.55, 3.55), ylim=(-0.1, 1.6), title=f"$H_q$ = 4, $H_{{kv}}$ = {H_kv}")
        axes.axis("off")


PICTURES = (training, mask, groups)
