"""Draws a recorded run: lanes of running requests, then the numbers of waiting requests and used pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ..ui import Messages
from .drawing import ACCENT, DIM, PALE, drawable, picture
from .labels import shortened
from .schedule_run import KINDS, RecordedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "draw_schedule"]

COLOURS = {"prefill": "#0072b2", "decode": "#e9b44c", "again": "#8a5fc0"}
KEPT, BLACK = "#b8d4e8", "#1b1d22"
LANE, PANEL = 0.2, 0.9  # heights in inches
LABEL = 12  # columns of a terminal


def draw_schedule(run: RecordedRun, words: Messages, format: str) -> bytes:
    """Return the picture of a recorded run as PNG or SVG."""
    panels = 1 if run.pages is None else 2
    width = min(max(len(run.steps) * 0.12, 7.0), 16.0)
    lanes = min(max(run.lanes * LANE, 1.4), 20.0)
    with picture(width + 0.8, lanes + panels * PANEL + 1.5, run.title(words), format) as drawn:
        axes = drawn.figure.subplots(1 + panels, 1, sharex=True, height_ratios=[lanes, *[PANEL] * panels])
        _draw_lanes(axes[0], run, words, width / len(run.steps))
        _draw_counts(axes[1], run, [("#7d8590", [step.waiting for step in run.steps])], words("viz_schedule_waiting"))
        if run.pages is not None:
            used, kept = [step.pages_used or 0 for step in run.steps], [step.pages_kept for step in run.steps]
            both = [a + b for a, b in zip(used, kept, strict=True)]
            _draw_counts(axes[2], run, [(KEPT, both), ("#00795a", used)], words("viz_schedule_pages"))
            axes[2].axhline(run.pages, color=DIM, lw=0.8, ls="--")
            axes[2].set_ylim(0, run.pages * 1.08)
        axes[-1].set_xlabel(words("viz_schedule_step"))
        axes[-1].set_xlim(0, len(run.steps))
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        drawn.figure.legend(
            handles=_legend(run, words), loc="outside lower center", ncols=4, fontsize=8, frameon=False, labelcolor=DIM
        )
    return drawn.data


def _draw_lanes(axes: Axes, run: RecordedRun, words: Messages, inches: float) -> None:
    """Draw the lanes with their requests and events. inches: the width of a step."""
    for span in run.spans:
        axes.broken_barh([(span.first, span.last - span.first)], (span.lane - 0.42, 0.84), facecolors=PALE)
    for kind in KINDS:
        bars = [(i, work.lane) for i, step in enumerate(run.steps) for work in step.work if work.kind == kind]
        for lane in sorted({lane for _, lane in bars}):
            places = [(i + 0.04, 0.92) for i, other in bars if other == lane]
            axes.broken_barh(places, (lane - 0.42, 0.84), facecolors=COLOURS[kind])
    for span in run.spans:
        room = int((span.last - span.first) * inches / 0.075)  # the number of characters that fit
        if room >= 2:
            label = drawable(shortened(span.id, min(room, LABEL)))
            box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
            axes.text(span.first + 0.15, span.lane, label, fontsize=6.5, va="center_baseline", clip_on=True, bbox=box)
    for name, (marker, colour) in _MARKS.items():
        places = _places(run, name)
        if places:
            x, y = zip(*places, strict=True)
            axes.plot(x, y, marker, ms=6, mew=1.8, color=colour, clip_on=False, zorder=5)
    axes.set_ylim(max(run.lanes, 1) - 0.5, -0.5)
    axes.set_ylabel(words("viz_schedule_lanes"))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))


_MARKS = {"preempted": ("x", ACCENT), "aborted": ("D", BLACK), "error": ("P", "#d00000")}


def _places(run: RecordedRun, name: str) -> list[tuple[float, float]]:
    """Return the step and the lane of each event, without events of requests that were not running."""
    places = [
        (number + (name == "error"), place)
        for number, step in enumerate(run.steps)
        for place in {"preempted": step.preempted, "aborted": step.aborted, "error": step.finished}[name]
        if name != "error" or place.why == "error"
    ]
    places += [(len(run.steps), place) for place in run.late if name == "aborted"]
    return [(float(x), float(place.lane)) for x, place in places if place.lane is not None]


def _draw_counts(axes: Axes, run: RecordedRun, layers: list[tuple[str, list[int]]], label: str) -> None:
    edges = np.arange(len(run.steps) + 1)
    for colour, counts in layers:
        axes.stairs(counts, edges, fill=True, color=colour)
    axes.set_ylabel(label)
    axes.set_ylim(0, max(1, *(max(counts) for _, counts in layers)) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))


def _legend(run: RecordedRun, words: Messages) -> list[Any]:
    from matplotlib.lines import Line2D

    drawn = {work.kind for step in run.steps for work in step.work}
    entries: list[Any] = [
        Patch(color=COLOURS[kind], label=words(f"viz_schedule_{kind}")) for kind in KINDS if kind in drawn
    ]
    entries.append(Patch(color=PALE, label=words("viz_schedule_idle")))
    for name, (marker, colour) in _MARKS.items():
        if _places(run, name):
            label = words(f"viz_schedule_{name}")
            entries.append(Line2D([], [], marker=marker, color=colour, mew=1.8, ls="", label=label))
    if run.pages is not None:
        entries.append(Patch(color="#00795a", label=words("viz_schedule_used")))
        if any(step.pages_kept for step in run.steps):
            entries.append(Patch(color=KEPT, label=words("viz_schedule_kept")))
        entries.append(Line2D([], [], color=DIM, lw=0.8, ls="--", label=words("viz_schedule_all_pages")))
    return entries
