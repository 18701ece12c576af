"""Draws the masks of each row of a batch: causal, padding, and the two combined."""

from __future__ import annotations

from typing import Any

from matplotlib.colors import ListedColormap

from ..ui import Messages
from .arrays import Mask, masks_of
from .drawing import BLUE, DIM, PALE, picture

__all__ = ["draw_mask"]

NUMBERED = 12  # the most keys for which each cell has room for the mask's value


def draw_mask(causal: Mask, lengths: list[int], title: str, words: Messages) -> bytes:
    """Draw a row of three masks for each length."""
    L, S = causal.shape
    cell = min(max(3 / S, 0.16), 0.42)
    height = max(len(lengths) * (L * cell + 0.9) + 0.8, 2)
    with picture(3 * S * cell + 2.4, height, title) as drawn:
        grid = drawn.figure.subplots(len(lengths), 3, squeeze=False)
        for row, length in zip(grid, lengths, strict=True):
            names = (
                words("viz_mask_causal"),
                words("viz_mask_padding_of", length=length),
                words("viz_mask_both"),
            )
            for axes, mask, name in zip(row, masks_of(causal, length), names, strict=True):
                _draw(axes, mask, name)
            row[0].set_ylabel(words("viz_query_position"))
        for axes in grid[-1]:
            axes.set_xlabel(words("viz_key_position"))
    return drawn.data


def _draw(axes: Any, mask: Mask, name: str) -> None:
    L, S = mask.shape
    axes.pcolormesh(mask, cmap=ListedColormap([PALE, BLUE]), vmin=0, vmax=1, edgecolors="white", linewidth=1)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.set_title(name)
    step = 1 if S <= NUMBERED else 4
    axes.set_xticks([key + 0.5 for key in range(0, S, step)], range(0, S, step))
    axes.set_yticks([query + 0.5 for query in range(0, L, step)], range(S - L, S, step))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if S <= NUMBERED:
        for query in range(L):
            for key in range(S):
                seen = mask[query, key]
                axes.text(
                    key + 0.5,
                    query + 0.5,
                    "0" if seen else "−∞",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if seen else DIM,
                )
