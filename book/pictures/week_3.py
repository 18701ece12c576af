"""Pictures of week 3 as a whole."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch
from style import BLUE, GREEN, GREY, ORANGE, PALE

RESULTS = Path(__file__).parents[2] / "benches" / "results" / "serving.json"
STAGES = {"RESERVE": (2.9, BLUE), "COMPUTE": (6.6, ORANGE), "COMMIT": (10.0, GREEN)}  # horizontal position and colour
BOXES = {  # position of the centre, width, colour
    "Request": (0.2, 1.2, 1.6, GREY),
    "Scheduler": (2.9, 1.2, 1.8, BLUE),
    "Batch": (4.9, 1.2, 1.1, GREY),
    "model": (6.6, 1.2, 1.3, ORANGE),
    "settle": (10.0, 1.2, 1.5, GREEN),
    "RequestCache": (6.45, -0.55, 8.9, GREY),
}
PARTS = [  # owner, default that a later day replaces, these days
    (2.9, "Budget", "2"),
    (4.7, "Preemption", "3"),
    (6.6, "make_layer", "4"),
    (8.3, "Prefixes", "5"),
    (10.0, "Decoding", "2, 6"),
]
ARROWS = [  # from, to, label, position of the label
    ((1.0, 1.2), (2.0, 1.2), "add", (1.5, 1.36)),
    ((3.8, 1.2), (4.35, 1.2), "", (0, 0)),
    ((5.45, 1.2), (5.95, 1.2), "", (0, 0)),
    ((7.25, 1.2), (9.25, 1.2), "logits", (8.25, 1.36)),
    ((2.9, 0.85), (2.9, -0.2), "open, reserve", (2.8, 0.2)),
    ((6.6, 0.85), (6.6, -0.2), "step, attend", (6.5, 0.2)),
    ((10.0, 0.85), (10.0, -0.2), "commit, close", (9.9, 0.2)),
]


def engine() -> None:
    """Draw a step as on a whiteboard, reserve, compute, commit, and the parts that later days replace."""
    _, axes = plt.subplots(figsize=(9, 4.0))
    for name, (x, y, width, colour) in BOXES.items():
        box = FancyBboxPatch((x - width / 2, y - 0.32), width, 0.64, boxstyle="round,pad=0.03", facecolor="white")
        box.set(edgecolor=colour, linewidth=1.8)
        axes.add_patch(box)
        axes.text(x, y, name, ha="center", va="center", fontsize=10, family="monospace")
    for name, (x, colour) in STAGES.items():
        axes.text(x, 2.0, name, ha="center", va="center", fontsize=11, color=colour, weight="bold")
    for start, end, text, place in ARROWS:
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": GREY, "linewidth": 1.4})
        side = "right" if start[0] == end[0] else "center"
        axes.text(*place, text, ha=side, va="bottom", fontsize=9, color="#444444")
    for x, name, days in PARTS:
        box = FancyBboxPatch((x - 0.72, -1.85), 1.44, 0.5, boxstyle="round,pad=0.02", facecolor="#f2f2f2")
        box.set(edgecolor=PALE, linewidth=1)
        axes.add_patch(box)
        axes.text(x - 0.06, -1.6, name, ha="center", va="center", fontsize=8.5, family="monospace")
        axes.text(x + 0.74, -1.32, days, ha="center", va="center", fontsize=8.5, color="white", weight="bold").set_bbox(
            {"boxstyle": "round,pad=0.25", "facecolor": GREY, "edgecolor": "none"}
        )
    bend = {"arrowstyle": "->", "color": GREY, "linewidth": 1.4, "connectionstyle": "arc3,rad=0.2"}
    axes.annotate("", (0.2, 1.56), (10.0, 1.56), arrowprops=bend)
    axes.text(5.1, 2.75, "add, num_computed_tokens", ha="center", va="bottom", fontsize=9, color="#444444")
    axes.set(xlim=(-0.8, 11.1), ylim=(-2.0, 3.1), aspect="equal")
    axes.axis("off")


def throughput() -> None:
    """Draw the tokens per second of all requests together against the number of requests."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    shapes = dict.fromkeys(row["shape"] for row in reversed(rows))
    _, panels = plt.subplots(1, len(shapes), figsize=(9, 3.3), layout="constrained")
    for axes, shape in zip(panels, shapes, strict=True):
        of_shape = [row for row in rows if row["shape"] == shape]
        counts = [row["requests"] for row in of_shape]
        axes.plot(counts, [row["decode without sampling"] for row in of_shape], color=BLUE, linestyle=":")
        axes.plot(counts, [row["decode"] for row in of_shape], color=BLUE, marker="o", markersize=4)
        if all("llama.cpp" in row for row in of_shape):
            axes.plot(counts, [row["llama.cpp"]["decode"] for row in of_shape], color=ORANGE, marker="o", markersize=4)
        axes.set(xscale="log", xticks=counts, xticklabels=counts, ylim=(0, None), ylabel="tok/s")
        axes.minorticks_off()
        axes.set_title(shape, fontsize=10)


PICTURES = (engine, throughput)
