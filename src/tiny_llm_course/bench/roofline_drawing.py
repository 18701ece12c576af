"""Draws the roofline: speed against operations per byte, both on logarithmic axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter

from ..ui import Messages
from ..viz.drawing import ACCENT, BLUE, DIM, picture
from .roofline_points import BATCH, Point

if TYPE_CHECKING:
    from tiny_llm_native.roofline import Speeds

__all__ = ["draw_roofline"]


def draw_roofline(speeds: Speeds, points: list[Point], words: Messages) -> bytes:
    with picture(7.5, 4.2, words("roofline_title")) as drawn:
        axes = drawn.figure.subplots()
        intensity = np.geomspace(0.25, max(4096, 2 * max(point.intensity for point in points)), 200)
        for key, peak in (("float32", speeds.float32), ("bfloat16", speeds.bfloat16), ("int8", speeds.int8)):
            if peak:
                axes.loglog(intensity, np.minimum(peak, speeds.bandwidth * intensity) / 1e9, color=BLUE, lw=2)
                axes.annotate(
                    f"{words(f'roofline_{key}')}: {peak / 1e9:,.0f}",
                    (intensity[-1], peak / 1e9),
                    (0, 3),
                    textcoords="offset points",
                    ha="right",
                    color=BLUE,
                    fontsize=8,
                )
        start = intensity[20]
        axes.annotate(
            f"{words('roofline_bandwidth')}: {speeds.bandwidth / 1e9:.0f} GB/s",
            (start, speeds.bandwidth * start / 1e9),
            (6, -4),
            textcoords="offset points",
            va="top",
            color=BLUE,
            fontsize=8,
        )
        for number, point in enumerate(points, start=1):
            name = words(f"roofline_{point.name}", L=point.L, S=point.S - point.L, batch=BATCH)
            label = f"{number}  {name}: {point.tokens:,.0f} tok/s"
            axes.plot(point.intensity, point.rate / 1e9, "o", ms=9, color=ACCENT, label=label)
            place = (point.intensity, point.rate / 1e9)
            axes.annotate(str(number), place, ha="center", va="center_baseline", color="white", fontsize=7)
        axes.legend(loc="lower right", handlelength=0, handletextpad=0, markerscale=0, labelcolor=DIM, fontsize=8)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.set_xlabel(words("roofline_intensity"))
        axes.set_ylabel("GFLOP/s")
        axes.grid(alpha=0.25, which="both", lw=0.4)
    return drawn.data
