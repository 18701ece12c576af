"""Draws attention weights: one head with its tokens, or all heads of all layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import PowerNorm

from ..ui import Messages
from .arrays import Array
from .drawing import ACCENT, PALE, drawable, picture
from .labels import shortened
from .probe import Attention

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

__all__ = ["draw_all", "draw_one"]

TICKS = (0, 0.05, 0.25, 0.5, 1)
LABEL = 16  # columns of a terminal, of which a Japanese character takes two
PROMPT = 60
NUMBERED = 12  # the most tokens for which each cell has room for a number


def draw_one(seen: Attention, words: Messages) -> bytes:
    """Draw a heat map of the chosen head, with a row for each query and a column for each key."""
    labels = [drawable(shortened(label, LABEL)) for label in seen.labels]
    L = len(labels)
    side = L * min(max(6 / L, 0.2), 0.6)
    title = words("viz_attention_title", model=seen.model, layer=seen.layer, head=seen.head)
    with picture(max(side, 2.5) + 2.6, max(side, 2) + 1.8, title) as drawn:
        axes = drawn.figure.add_subplot()
        image = _show(axes, np.minimum(seen.chosen, 1))
        axes.set_xticks(range(L), labels, rotation=90)
        axes.set_yticks(range(L), labels)
        axes.set_xlabel(words("viz_looked_at"))
        axes.set_ylabel(words("viz_looks"))
        axes.tick_params(length=0)
        axes.set_xticks(np.arange(L + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(L + 1) - 0.5, minor=True)
        axes.grid(which="minor", color=PALE, linewidth=0.5)
        axes.tick_params(which="minor", length=0)
        if L <= NUMBERED:
            _write_numbers(axes, seen.chosen)
        _add_scale(drawn.figure, image, axes, words)
    return drawn.data


def draw_all(seen: Attention, words: Messages) -> bytes:
    """Draw every head as a small heat map: a row of maps for each layer."""
    layers, heads, L, _ = seen.weights.shape
    pitch = L + max(1, L // 12)  # distance from one map to the next, including the gap
    mosaic = np.full((layers * pitch, heads * pitch), 2, np.float32)  # values over 1 get the colour of gaps
    for layer, row in enumerate(seen.weights):
        for head, weights in enumerate(row):
            mosaic[layer * pitch : layer * pitch + L, head * pitch : head * pitch + L] = np.minimum(weights, 1)
    map_side = min(max(8 / heads, 0.8), 1.8)
    title = f"{words('viz_all_title', model=seen.model)}\n{shortened(' '.join(seen.prompt.split()), PROMPT)}"
    with picture(heads * map_side + 1.6, layers * map_side + 1.2, title) as drawn:
        axes = drawn.figure.add_subplot()
        image = _show(axes, mosaic[: L - pitch, : L - pitch])
        centres = (L - 1) / 2
        axes.set_xticks(np.arange(heads) * pitch + centres, [words("viz_head", head=i) for i in range(heads)])
        axes.set_yticks(np.arange(layers) * pitch + centres, [words("viz_layer", layer=i) for i in range(layers)])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        _add_scale(drawn.figure, image, axes, words)
    return drawn.data


def _show(axes: Axes, weights: Array) -> AxesImage:
    """Show an image whose colours darken with the square root of the weight, so that small weights can be told
    apart."""
    from matplotlib import colormaps

    colours = colormaps["Blues"].with_extremes(bad=ACCENT, over=PALE)
    return axes.imshow(weights, cmap=colours, norm=PowerNorm(0.5, 0, 1))


def _write_numbers(axes: Axes, weights: Array) -> None:
    for (query, key), weight in np.ndenumerate(weights):
        if weight >= 0.005:
            axes.text(
                key,
                query,
                f"{weight:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if weight > 0.3 else None,
            )


def _add_scale(figure: Figure, image: AxesImage, axes: Axes, words: Messages) -> None:
    part = min(3 / figure.get_figheight(), 0.7)
    scale = figure.colorbar(image, ax=axes, shrink=part, aspect=25, pad=0.02, ticks=TICKS, label=words("viz_weight"))
    scale.ax.set_yticklabels([f"{tick:.0%}" for tick in TICKS])
    scale.outline.set_visible(False)
