"""The pictures of week 3, day 7."""

import runpy
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PALE

PALE_GREEN, PALE_BLUE, PALE_ORANGE = "#bfe6d9", "#cfe3f0", "#f6cfb0"
BOOK = Path(__file__).parents[1]


def box(axes: Axes, x: float, y: float, width: float, text: str, face: str, edge: str, **style: object) -> None:
    axes.add_patch(Rectangle((x, y), width, 0.8, facecolor=face, edgecolor=edge, linewidth=1.2, **style))
    axes.text(x + width / 2, y + 0.4, text, ha="center", va="center", fontsize=9)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, color=colour, linewidth=1.3, arrowstyle="-|>", mutation_scale=10, shrinkA=0, shrinkB=0
        )
    )


def blank(axes: Axes, width: float, height: float, bottom: float = 0) -> None:
    axes.set_xlim(0, width)
    axes.set_ylim(bottom, height)
    axes.axis("off")


def threads() -> None:
    """The loop's thread with its coroutines, the engine's thread with its steps, and what goes to and fro."""
    _, axes = plt.subplots(figsize=(8.6, 3.9))
    axes.text(0, 5.05, "the loop's thread: never waits", fontsize=10, color=BLUE)
    axes.text(0, -0.35, "the engine's thread: computes, or sleeps", fontsize=10, color=ORANGE)
    for x, name in ((0.6, "client a"), (5.6, "client b"), (10.6, "client b leaves")):
        box(axes, x, 4, 2.6 if x < 10 else 3.2, name, PALE_BLUE, BLUE)
    steps = ((1.2, "job"), (2.4, "step: a"), (5.2, "step: a"), (8.0, "job"), (9.2, "step: a, b"), (12.6, "job"))
    for x, name in steps:
        is_job = name == "job"
        box(axes, x, 0.3, 1.0 if is_job else 2.6, name, "white" if is_job else PALE_ORANGE, GREY if is_job else ORANGE)
    box(axes, 13.8, 0.3, 2.6, "step: a", PALE_ORANGE, ORANGE)
    for start, end in ((1.7, 1.7), (6.4, 8.4), (12.0, 13.0)):  # jobs go down
        arrow(axes, (start, 4), (end, 1.15), GREY)
    for start, end in ((4.9, 3.0), (7.7, 4.4), (11.7, 9.4), (11.9, 10.0)):  # updates go up
        arrow(axes, (start, 1.15), (end, 3.95 if end < 9 else 3.2), GREEN)
    axes.text(1.0, 2.5, "begin", fontsize=9, ha="right", color=GREY)
    axes.text(7.0, 2.9, "begin", fontsize=9, color=GREY)
    axes.text(12.7, 2.5, "end", fontsize=9, color=GREY)
    axes.text(4.3, 2.2, "updates", fontsize=9, color=GREEN, ha="left")
    blank(axes, 16.6, 5.6, -0.6)


def leaving() -> None:
    """A client that goes away: what is cancelled, from the connection down to the pages."""
    _, axes = plt.subplots(figsize=(8.6, 3.6))
    names = ("client", "EventStream", "events", "generate", "engine's thread")
    places = (1.2, 4.6, 8.0, 11.4, 15.0)
    for x, name in zip(places, names, strict=True):
        box(axes, x - 1.35, 6.2, 2.7, name, PALE_BLUE if x < 15 else PALE_ORANGE, BLUE if x < 15 else ORANGE)
        axes.plot([x, x], [0, 6.2], color=PALE, linewidth=1.2, zorder=0)
    c, s, e, g, t = places
    for y, start, end, text, colour in (
        (5.5, t, g, "update", GREEN),
        (5.5, g, e, "update", GREEN),
        (5.5, e, s, "event", GREEN),
        (5.5, s, c, "data: ...", GREEN),
        (4.3, c, s, "http.disconnect", ORANGE),
        (3.3, s, e, "cancel, close", ORANGE),
        (2.3, e, g, "cancel, close", ORANGE),
        (1.3, g, t, "job: end", ORANGE),
    ):
        arrow(axes, (start, y), (end, y), colour)
        axes.text((start + end) / 2, y + 0.12, text, ha="center", fontsize=9, color=colour)
    axes.text(t - 0.15, 0.45, "abort: pages free", ha="right", fontsize=9, color=ORANGE)
    blank(axes, 16.6, 7.1)


def queue() -> None:
    """How long requests wait by load, with and without a bound."""
    waits: Callable[..., list[float | None]] = runpy.run_path(str(BOOK / "week_3" / "d7_queue.py"))["waits"]
    loads = np.array([0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5])
    whole = [np.median([wait for wait in waits(load) if wait is not None]) for load in loads]
    bounded = [waits(load, 64) for load in loads]
    medians = [np.median([wait for wait in each if wait is not None]) for each in bounded]
    refused = [100 * sum(wait is None for wait in each) / len(each) for each in bounded]
    _, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.2), layout="constrained")
    left.plot(100 * loads, whole, color=ORANGE, label="everybody waits")
    left.plot(100 * loads, medians, color=BLUE, label="64 may wait")
    left.set_ylim(0, 30)
    left.set_ylabel("median wait (s)")
    left.legend(frameon=False)
    right.plot(100 * loads, refused, color=BLUE)
    right.set_ylabel("refused (%)")
    for axes in (left, right):
        axes.set_xlabel("load (%)")
        axes.axvline(100, color=PALE, linewidth=1)
        axes.spines[["top", "right"]].set_visible(False)


PICTURES = (threads, leaving, queue)
