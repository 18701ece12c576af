"""Pictures of week 3 as a whole."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch
from style import BLUE, GREEN, GREY, ORANGE

RESULTS = Path(__file__).parents[2] / "benches" / "results" / "serving.json"
BOXES = {  # place of the centre, width, colour
    "Request": (0.0, 1.2, 1.5, GREY),
    "Scheduler": (2.6, 1.2, 1.7, BLUE),
    "Batch": (5.4, 1.2, 1.2, GREY),
    "model": (7.7, 1.2, 1.4, ORANGE),
    "sampler": (10.1, 1.2, 1.4, ORANGE),
    "RequestCache": (5.4, -0.5, 2.2, GREEN),
}
ARROWS = [  # from, to, what goes along
    ((0.75, 1.2), (1.75, 1.2), "add", (1.25, 1.36)),
    ((3.45, 1.2), (4.8, 1.2), "schedule", (4.12, 1.36)),
    ((6.0, 1.2), (7.0, 1.2), "T x 1", (6.5, 1.36)),
    ((8.4, 1.2), (9.4, 1.2), "logits", (8.9, 1.36)),
    ((2.9, 0.85), (4.4, -0.15), "open, extend, close", (2.2, 0.1)),
    ((7.5, 0.85), (6.3, -0.15), "attend", (7.5, 0.1)),
]


def engine() -> None:
    """Who hands what to whom in one step."""
    _, axes = plt.subplots(figsize=(9, 3.1))
    for name, (x, y, width, colour) in BOXES.items():
        box = FancyBboxPatch((x - width / 2, y - 0.32), width, 0.64, boxstyle="round,pad=0.03", facecolor="white")
        box.set(edgecolor=colour, linewidth=1.8)
        axes.add_patch(box)
        axes.text(x, y, name, ha="center", va="center", fontsize=10, family="monospace")
    for start, end, text, place in ARROWS:
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": GREY, "linewidth": 1.4})
        axes.text(*place, text, ha="center", va="bottom", fontsize=9, color="#444444")
    bend = {"arrowstyle": "->", "color": GREY, "linewidth": 1.4, "connectionstyle": "arc3,rad=0.22"}
    axes.annotate("", (0, 1.56), (10.1, 1.56), arrowprops=bend)
    axes.text(5.05, 2.79, "Request.add", ha="center", va="bottom", fontsize=9, color="#444444")
    axes.set(xlim=(-0.9, 11.0), ylim=(-0.95, 3.0), aspect="equal")
    axes.axis("off")


def throughput() -> None:
    """Tokens a second of all requests together, by how many they are."""
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
