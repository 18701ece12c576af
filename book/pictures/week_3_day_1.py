"""The pictures of week 3, day 1."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyBboxPatch, Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PALE, PINK

LENGTHS = {"a": 4, "b": 9, "c": 2, "d": 5, "e": 7, "f": 3, "g": 6, "h": 3}  # steps of each request
SLOTS = 3
SHADES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a6fbe", "#888888")
COLOURS = dict(zip(LENGTHS, SHADES, strict=True))


def places(is_static: bool) -> list[tuple[str, int, int]]:
    """Return each request, its slot, and the step in which it begins."""
    free_at = [0] * SLOTS
    found = []
    for number, (name, length) in enumerate(LENGTHS.items()):
        if is_static and number % SLOTS == 0:
            free_at = [max(free_at)] * SLOTS
        slot = min(range(SLOTS), key=lambda slot: free_at[slot])
        found.append((name, slot, free_at[slot]))
        free_at[slot] += length
    return found


def paler(colour: str) -> tuple[float, ...]:
    return tuple(1 - 0.45 * (1 - part) for part in to_rgb(colour))


def timeline() -> None:
    """Draw eight requests in three slots: in static batches, and in a continuous batch."""
    _, panels = plt.subplots(2, 1, figsize=(8, 3.9), layout="constrained", sharex=True)
    ends = []
    for axes, is_static in zip(panels, (True, False), strict=True):
        found = places(is_static)
        end = max(start + LENGTHS[name] for name, _, start in found)
        ends.append(end)
        axes.add_patch(Rectangle((0, 0), end, SLOTS, facecolor="#f2f2f2", edgecolor=PALE, hatch="////", linewidth=0.5))
        for name, slot, start in found:
            for step in range(LENGTHS[name]):
                first = step == 0
                axes.add_patch(
                    Rectangle(
                        (start + step, slot),
                        1,
                        1,
                        facecolor=COLOURS[name] if first else paler(COLOURS[name]),
                        edgecolor="white",
                        linewidth=1,
                    )
                )
            axes.text(start + 0.5, slot + 0.53, name, ha="center", va="center", color="white", fontsize=10)
        if is_static:
            for start in {start for _, _, start in found}:
                axes.axvline(start, color="black", linewidth=1)
        axes.set(ylim=(SLOTS, 0), yticks=[0.5, 1.5, 2.5], yticklabels=["0", "1", "2"])
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.set_title("static" if is_static else "continuous", fontsize=10, loc="left")
    panels[1].set(xlim=(0, max(ends)), xticks=range(0, max(ends) + 1, 2), xlabel="step")


def rows() -> None:
    """Draw the rows of a step, and the keys that each row sees, slot by slot."""
    capacity = 8
    step = [("a", 0, 4, 1), ("b", 1, 6, 1), ("c", 2, 0, 4)]  # request, slot, start, rows
    colours = {"a": BLUE, "b": ORANGE, "c": GREEN}
    stale = {2: 7}  # slot -> positions written by the slot's last request
    _, axes = plt.subplots(figsize=(8.4, 3.1), layout="constrained")
    row = 0
    for slot in range(3):
        axes.text(slot * (capacity + 1) + capacity / 2, -0.5, f"slot {slot}", ha="center", va="center", fontsize=9.5)
    for request, own, start, count in step:
        for position in range(start, start + count):
            last = position == start + count - 1
            axes.add_patch(Rectangle((-2.6, row), 1, 1, facecolor=colours[request], edgecolor="white", linewidth=1.2))
            axes.text(-2.1, row + 0.53, request, ha="center", va="center", color="white", fontsize=10)
            axes.text(-1.15, row + 0.53, str(position), ha="center", va="center", fontsize=9.5)
            for slot in range(3):
                for column in range(capacity):
                    x = slot * (capacity + 1) + column
                    seen = slot == own and column <= position
                    style = {"facecolor": "white", "edgecolor": "#dddddd", "linestyle": "-", "linewidth": 1.0}
                    if seen:
                        new = column >= start
                        style |= {"facecolor": colours[request], "alpha": 0.95 if new else 0.4, "edgecolor": "white"}
                    elif slot in stale and column < stale[slot] and column >= 4:
                        style |= {"facecolor": "#eeeeee", "hatch": "////", "edgecolor": "#cccccc"}
                    axes.add_patch(Rectangle((x, row), 1, 1, **style))
            if last:
                axes.annotate(
                    "",
                    (3 * capacity + 3.6, row + 0.5),
                    (3 * capacity + 2.3, row + 0.5),
                    arrowprops={"arrowstyle": "-|>", "color": "black"},
                )
            row += 1
    axes.set(xlim=(-2.8, 3 * capacity + 4), ylim=(row + 0.1, -1), aspect="equal")
    axes.axis("off")


def states() -> None:
    """Draw the three states of a request, and what leads from one state to the next."""
    _, axes = plt.subplots(figsize=(8.2, 1.9), layout="constrained")
    for x, name, colour in ((0, "WAITING", GREY), (3.6, "RUNNING", BLUE), (8.4, "FINISHED", GREEN)):
        axes.add_patch(
            FancyBboxPatch((x, 0), 1.7, 0.8, boxstyle="round,pad=0.06", facecolor=colour, edgecolor="none", alpha=0.9)
        )
        axes.text(x + 0.85, 0.41, name, ha="center", va="center", color="white", fontsize=9.5, family="monospace")
    arrow(axes, (1.85, 0.4), (3.5, 0.4), "begin")
    arrow(axes, (5.4, 0.55), (8.3, 0.55), '"stop" "length" "error"')
    arrow(axes, (5.4, 0.2), (8.3, 0.2), "", PINK)
    curve = {"arrowstyle": "-|>", "color": PINK, "connectionstyle": "arc3,rad=0.12"}
    axes.annotate("", (9.25, -0.1), (0.85, -0.1), arrowprops=curve)
    axes.text(6.9, -0.05, '"abort"', ha="center", va="center", color=PINK, fontsize=9, family="monospace")
    curve = {"arrowstyle": "-|>", "color": BLUE, "connectionstyle": "arc3,rad=-0.9"}
    axes.annotate("", (5.0, 0.92), (3.9, 0.92), arrowprops=curve)
    axes.text(5.35, 1.35, "add", ha="center", va="center", fontsize=9, family="monospace", color=BLUE)
    axes.set(xlim=(-0.2, 10.3), ylim=(-0.9, 1.75))
    axes.axis("off")


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str, colour: str = "black") -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour})
    axes.text((start[0] + end[0]) / 2, start[1] + 0.22, text, ha="center", va="center", fontsize=9, family="monospace")


PICTURES = (timeline, rows, states)
