"""Pictures of measurements from benches/results."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
from style import BLUE, GREEN, GREY, ORANGE, PALE, PINK

RESULTS = Path(__file__).parents[2] / "benches" / "results"
NAMES = {"week 1": "week 1", "w2d1": "1", "w2d3": "3", "w2d4": "4", "w2d5": "5", "w2d6": "6", "w2d7": "7"}
COLOURS = (GREY, BLUE, PINK, GREEN, ORANGE, "#56b4e9", "#f0e442", PALE)


def ladder() -> None:
    """Draw the speed of prefill and of decoding after each day."""
    rows = json.loads((RESULTS / "ladder.json").read_text(encoding="utf-8"))["model"]
    _, axes = plt.subplots(figsize=(9, 3.6))
    for shift, of, colour in ((-0.2, "prefill", BLUE), (0.2, "decode", ORANGE)):
        for place, row in enumerate(rows):
            axes.bar(place + shift, row[of], width=0.36, color=colour)
            text = f"{row[of]:.{0 if row[of] >= 10 else 1 if row[of] >= 1 else 2}f}"
            axes.text(place + shift, row[of] * 1.12, text, ha="center", fontsize=8)
    axes.set(yscale="log", ylabel="tok/s", xticks=range(len(rows)))
    axes.set_xticklabels([NAMES.get(row["stage"], row["stage"]) for row in rows])


def profile() -> None:
    """Draw the time of one step as a bar that is divided into parts."""
    parts = json.loads((RESULTS / "one_token.json").read_text(encoding="utf-8"))["milliseconds"]
    whole, left = parts["whole step"], 0.0
    _, axes = plt.subplots(figsize=(9, 1.5))
    for (name, time), colour in zip(list(parts.items())[: list(parts).index("whole step")], COLOURS, strict=True):
        axes.barh(0, time, left=left, color=colour)
        if time > 0.04 * whole:
            axes.text(left + time / 2, 0, f"{time:.1f}", ha="center", va="center", color="white")
            axes.text(left + time / 2, 0.5, name, ha="center", va="bottom", fontsize=8)
        left += time
    axes.set(yticks=[], xlabel="ms", xlim=(0, whole), ylim=(-0.42, 0.75))
    axes.spines["left"].set_visible(False)


PICTURES = (ladder, profile)
