"""Draws sampling: a panel of bars for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import PercentFormatter

from ..ui import Messages
from .drawing import BLUE, DIM, PALE, drawable, picture
from .labels import shortened
from .sampling_steps import SamplingStep, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_sampling"]

LABEL = 16  # columns of a terminal
PROMPT = 70


def draw_sampling(
    steps: list[SamplingStep], best: list[int], labels: list[str], title: str, prompt: str, words: Messages
) -> bytes:
    """Draw a panel of bars for each step, in front of pale bars for the previous step."""
    names = [*(drawable(shortened(label, LABEL)) for label in labels), words("viz_sampling_rest")]
    end = drawable(shortened(" ".join(prompt.split())[::-1], PROMPT)[::-1])
    with picture(1.6 + 2.1 * len(steps), 1.5 + 0.27 * len(names), f"{title}\n{end}") as drawn:
        panels = drawn.figure.subplots(1, len(steps), sharey=True, sharex=True, squeeze=False)[0]
        before = None
        columns = [step.shares(best) for step in steps]
        for axes, step, shares in zip(panels, steps, columns, strict=True):
            _draw(axes, shares, before)
            axes.set_title(f"{step.name}\n{words('viz_sampling_left', count=f'{step.kept:,}')}")
            before = shares
        panels[0].set_yticks(range(len(names)), names)
        panels[0].invert_yaxis()
        panels[0].set_xlim(0, 1.35 * max(map(max, columns)))
        panels[0].xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    return drawn.data


def _draw(axes: Axes, shares: list[float], before: list[float] | None) -> None:
    places = range(len(shares))
    if before is not None:
        axes.barh(places, before, color=PALE, height=0.8)
    axes.barh(places, shares, color=[*[BLUE] * (len(shares) - 1), DIM], height=0.5)
    for place, share in enumerate(shares):
        end = max(share, 0 if before is None else before[place])
        axes.annotate(
            percent(share), (end, place), (4, 0), textcoords="offset points", va="center", fontsize=7.5, color=DIM
        )
    axes.tick_params(axis="y", length=0)
