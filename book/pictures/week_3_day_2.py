"""The pictures of week 3, day 2."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import BLUE, GREEN, GREY, ORANGE, PALE

from tiny_llm_given.config import ModelConfig
from tiny_llm_models.untrained import QWEN3_0_6B
from tiny_llm_ref.costs import Cost, Machine, model_cost

PALE_GREEN, PALE_BLUE, PALE_ORANGE = "#bfe6d9", "#cfe3f0", "#f6cfb0"
RESULTS = sorted((Path(__file__).parents[2] / "benches" / "results").glob("chunked_prefill*.json"))
CONFIG = ModelConfig.from_hf(QWEN3_0_6B)
MACHINES = (Machine(peak=1100e9, bandwidth=90e9), Machine(peak=100e12, bandwidth=1e12))
PROMPT, RUNNING, CONTEXT = 900, 15, 200


def steps() -> None:
    """Draw steps that read a prompt of 24 tokens while three requests generate: whole, and with a budget of 9."""
    _, axes = plt.subplots(figsize=(9, 3.2))
    ways = {1.9: [0, 0, 24, 1, 1, 1, 1, 1], 0: [0, 0, 6, 6, 6, 6, 1, 1, 1]}  # rows of the prompt in each step
    for y, counts in ways.items():
        x = 0
        for count in counts:
            axes.add_patch(Rectangle((x, y), 3, 0.8, facecolor=PALE_BLUE, edgecolor="none"))
            axes.add_patch(Rectangle((x + 3, y), count, 0.8, facecolor=PALE_ORANGE, edgecolor="none"))
            axes.add_patch(Rectangle((x, y), 3 + count, 0.8, facecolor="none", edgecolor=GREY, linewidth=1.1))
            x += 3 + count
            axes.plot(x, y - 0.12, "^", color=BLUE, ms=6)
        first = 3 * 2 + (27 if y else 36)  # when the prompt's first new token is chosen
        axes.plot(first, y - 0.36, "^", color=ORANGE, ms=6)
        arrow = {"arrowstyle": "<|-|>", "color": "black", "shrinkA": 0, "shrinkB": 0}
        wait = 27 if y else 9
        axes.annotate("", (6, y + 1.02), (6 + wait, y + 1.02), arrowprops=arrow)
        axes.text(6 + wait / 2, y + 1.08, str(wait), ha="center", va="bottom")
    axes.axvline(6, ymin=0.02, ymax=0.95, color=GREY, linestyle=":", linewidth=1)
    axes.set(xlim=(-0.3, 52), ylim=(-0.75, 3.4))
    axes.axis("off")


def rows() -> None:
    """Draw a step of two generated tokens and a chunk of three: the keys that each row sees, and who needs logits."""
    _, axes = plt.subplots(figsize=(7, 3.1))
    chunks = [("a", 6, 1, True), ("b", 3, 1, True), ("c", 4, 3, False)]  # id, start, tokens, logits needed
    y = 0.0
    for id, start, length, needs_logits in chunks:
        for row in range(length):
            for x in range(start + length):
                face, edge = (PALE_GREEN, GREEN) if x < start else (PALE_BLUE, BLUE)
                hidden = {"hatch": "///"} if x > start + row else {}
                if hidden:
                    face, edge = "#eeeeee", PALE
                axes.add_patch(Rectangle((x, y), 1, 0.8, facecolor=face, edgecolor=edge, linewidth=1, **hidden))
            axes.text(-0.3, y + 0.42, f"{id}, {start + row}", ha="right", va="center")
            if needs_logits and row == length - 1:
                axes.annotate(
                    "", (9.2, y + 0.4), (7.9, y + 0.4), arrowprops={"arrowstyle": "-|>", "color": BLUE, "lw": 1.6}
                )
                axes.text(9.4, y + 0.42, f"{id}, {start + length}", va="center", color=BLUE, weight="bold")
            y += 0.92
        y += 0.45
    axes.set(xlim=(-1.2, 11), ylim=(y - 0.3, -0.15), aspect="equal")
    axes.axis("off")


def chunk_seconds(machine: Machine, start: int, end: int, bits: float = 4.5) -> float:
    """Return the seconds of a step with all requests that generate, and a chunk of the prompt."""
    cost = model_cost(CONFIG, end - start, end, 0)
    token = model_cost(CONFIG, 1, CONTEXT, 0)
    weights = model_cost(CONFIG, 1, 1, bits / 8).bytes - model_cost(CONFIG, 1, 1, 0).bytes
    unneeded = 0 if end == PROMPT else 2 * CONFIG.hidden_size * CONFIG.vocab_size
    operations = cost.operations - unneeded + RUNNING * token.operations
    return machine.seconds(Cost(operations, weights + cost.bytes + RUNNING * token.bytes))


def tradeoff() -> None:
    """Draw the longest step and the wait of the prompt against the budget, on two machines."""
    _, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    budgets = np.unique(np.geomspace(RUNNING + 1, PROMPT + RUNNING, 120).astype(int))
    for axes, machine, name in zip(panels, MACHINES, ("1,100 GFLOP/s, 90 GB/s", "100 TFLOP/s, 1 TB/s"), strict=True):
        longest, first = [], []
        for budget in budgets:
            starts = range(0, PROMPT, int(budget) - RUNNING)
            times = [chunk_seconds(machine, start, min(start + int(budget) - RUNNING, PROMPT)) for start in starts]
            longest.append(1e3 * max(times))
            first.append(1e3 * sum(times))
        axes.loglog(budgets, first, color=BLUE, lw=2)
        axes.loglog(budgets, longest, color=ORANGE, lw=2)
        ticks = [16, 32, 64, 128, 256, 512, 915]
        axes.set(xticks=ticks, xticklabels=[str(tick) for tick in ticks], xlim=(15.5, 960))
        axes.minorticks_off()
        axes.set_title(name, fontsize=10)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g} ms")


def gaps() -> None:
    """Draw the measured longest gap between two tokens, and the wait of the prompt, against the budget."""
    _, panels = plt.subplots(1, len(RESULTS), figsize=(4.6 * len(RESULTS), 3.4), layout="constrained", squeeze=False)
    for axes, file in zip(panels[0], RESULTS, strict=True):
        found = json.loads(file.read_text(encoding="utf-8"))
        for place, row in enumerate(found["rows"]):
            bars(axes, place, 1e3 * row["longest_gap"], 1e3 * row["first_token"])
        names = ["∞" if row["budget"] is None else str(row["budget"]) for row in found["rows"]]
        alone = 1e3 * np.median([row["gap_before"] for row in found["rows"]])
        axes.axhline(alone, color=GREY, ls=":", lw=1)
        axes.set(yscale="log", xticks=range(len(names)), xticklabels=names)
        axes.yaxis.set_major_formatter(lambda value, _: duration(value))
        axes.set_title(found["model"], fontsize=10)


def bars(axes: Axes, place: int, longest: float, first: float) -> None:
    for shift, value, colour in ((-0.2, first, BLUE), (0.2, longest, ORANGE)):
        axes.bar(place + shift, value, width=0.36, color=colour)
        axes.text(place + shift, value * 1.06, duration(value).removesuffix(" ms"), ha="center", fontsize=7)


def duration(milliseconds: float) -> str:
    digits = 0 if milliseconds >= 10 else 1
    return f"{milliseconds:.{digits}f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


PICTURES = (steps, rows, tradeoff, gaps)
