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
            start, end, color=colour, linewidth=1.3, arrowstyle="-|>", mutation_scale=10, shrinkA=0, shrinkB=0, zorder=0
        )
    )


def blank(axes: Axes, width: float, height: float, bottom: float = 0) -> None:
    axes.set_xlim(0, width)
    axes.set_ylim(bottom, height)
    axes.axis("off")


def threads() -> None:
    """Draw the loop's thread with its coroutines, the engine's thread with its steps, and what they send each other."""
    _, axes = plt.subplots(figsize=(8.6, 3.7))
    axes.text(0, 5.75, "the loop's thread: coroutines, each of which waits for its own queue", fontsize=10, color=BLUE)
    axes.text(0, -0.45, "the engine's thread: jobs and steps, and sleep without either", fontsize=10, color=ORANGE)
    for y, start, end, name in ((4.6, 0.6, 16.4, "client a"), (3.4, 6.0, 12.6, "client b, who leaves here")):
        axes.add_patch(Rectangle((start, y), end - start, 0.8, facecolor=PALE_BLUE, edgecolor=BLUE, linewidth=1.2))
        axes.text(start + 0.3, y + 0.4, name, va="center", fontsize=9)
    for x in (0.6, 7.8, 13.0):
        box(axes, x, 0.3, 1.0, "job", "white", GREY)
    for x, name in ((1.8, "step: a"), (4.6, "step: a"), (9.0, "step: a, b"), (14.2, "step: a")):
        box(axes, x, 0.3, 2.6 if x < 14 else 2.2, name, PALE_ORANGE, ORANGE)
    for start, end, bottom, name in ((1.1, 1.1, 4.6, "begin"), (6.2, 8.2, 3.4, "begin"), (12.4, 13.4, 3.4, "end")):
        arrow(axes, (start, bottom), (end, 1.15), GREY)
        axes.text((start + end) / 2 + 0.2, 2.2, name, fontsize=9, color=GREY)
    for x, top in ((4.3, 4.6), (7.1, 4.6), (11.2, 3.4), (11.5, 4.6), (16.2, 4.6)):
        arrow(axes, (x, 1.15), (x, top), GREEN)
    axes.text(4.15, 2.2, "update", fontsize=9, color=GREEN, ha="right")
    axes.text(11.05, 2.2, "updates", fontsize=9, color=GREEN, ha="right")
    blank(axes, 16.8, 6.2, -0.7)


def leaving() -> None:
    """Draw what is cancelled when a client leaves, from the connection down to the pages."""
    _, axes = plt.subplots(figsize=(8.6, 3.6))
    names = ("client", "EventStream", "events", "generate", "engine's thread")
    places = (1.5, 4.9, 8.3, 11.7, 15.1)
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
    blank(axes, 16.7, 7.1)


def queue() -> None:
    """Draw how long requests wait against the load, with and without a limit on waiting requests."""
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
