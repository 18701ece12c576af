"""Draws RoPE: some pairs as hands of clocks, the cosine of every pair, and the dot product by distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator

from ..ui import Messages
from .drawing import ACCENT, BLUE, DIM, PALE, picture
from .rope_turns import Turns

__all__ = ["draw_rope"]

HANDS = 9  # positions that a clock shows


def draw_rope(turns: Turns, words: Messages) -> bytes:
    """Draw three rows: clocks for some pairs, a heat map of cosines, and a curve of dot products."""
    with picture(9, 9.5, words("viz_rope_title", **turns.title)) as drawn:
        rows = drawn.figure.subfigures(3, 1, height_ratios=(2.6, 4, 3))
        _draw_clocks(rows[0], turns, words)
        _draw_cosines(rows[1], turns, words)
        _draw_scores(rows[2].add_subplot(), turns, words)
    return drawn.data


def _draw_clocks(figure: Any, turns: Turns, words: Messages) -> None:
    """Draw the direction of the pair (1, 0) at each of the first positions, darker at later positions."""
    n = turns.dims // 2
    pairs = sorted({0, n // 16, n // 8, n // 4, n - 1})  # most pairs hardly move
    hands = min(HANDS, len(turns.cos))
    colours = colormaps["viridis_r"]
    figure.suptitle(words("viz_rope_clocks", last=hands - 1), fontsize=10)
    for axes, pair in zip(figure.subplots(1, len(pairs), squeeze=False)[0], pairs, strict=True):
        for position in range(hands):
            x, y = turns.cos[position, pair], turns.sin[position, pair]
            colour = colours(0.15 + 0.85 * position / max(hands - 1, 1))
            axes.plot([0, x], [0, y], color=colour, linewidth=1.6, solid_capstyle="round")
            axes.plot(x, y, "o", color=colour, markersize=4)
        axes.set_aspect("equal")
        axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), xticks=[], yticks=[])
        axes.spines[:].set_visible(True)
        axes.set_xlabel(words("viz_rope_clock", pair=pair, period=f"{turns.period(pair):,.0f}"), fontsize=8.5)


def _draw_cosines(figure: Any, turns: Turns, words: Messages) -> None:
    axes = figure.add_subplot()
    colours = ListedColormap(colormaps["PuOr"](np.linspace(0.1, 0.9, 256)))  # leaves out the darkest colours
    image = axes.imshow(turns.cos.T, cmap=colours, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_title(words("viz_rope_cosines"))
    axes.set_xlabel(words("viz_position"))
    axes.set_ylabel(words("viz_pair"))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    scale = figure.colorbar(image, ax=axes, ticks=(-1, 0, 1), aspect=25, pad=0.02)
    scale.outline.set_visible(False)


def _draw_scores(axes: Any, turns: Turns, words: Messages) -> None:
    axes.axhline(0, color=DIM, linewidth=0.8)
    axes.plot(turns.scores, color=BLUE, linewidth=1.8)
    axes.plot(0, 1, "o", color=ACCENT, markersize=5)
    axes.grid(color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlim(0, len(turns.scores) - 1)
    axes.set_title(words("viz_rope_scores"))
    axes.set_xlabel(words("viz_distance"))
    axes.set_ylabel(words("viz_score"))
