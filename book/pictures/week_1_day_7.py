"""The pictures of week 1, day 7: a distribution before and after each step of sampling."""

import matplotlib.pyplot as plt
import mlx.core as mx
from matplotlib.axes import Axes
from style import BLUE, GREEN, ORANGE, PALE

from tiny_llm_ref.sampler import apply_min_p, apply_repetition_penalty, apply_top_k, apply_top_p

SCORES = mx.array([[4.0, 3.0, 2.0, 1.0, 0.0, -2.0]])
FEW = mx.array([[3.0, 2.8, 2.2, 1.6, 1.4, 0.9, 0.7, -0.2, -0.5, -1.5]])  # for the pipeline


def steps() -> None:
    """Draw each step, grey before and blue after: steps on plain scores, then filters on sharp and on flat scores."""
    sharp, flat = SCORES / 0.5, SCORES / 2
    rows = [
        [
            ("T = 0.5", SCORES, sharp),
            ("T = 2", SCORES, flat),
            ("penalty 1.5", SCORES, apply_repetition_penalty(SCORES, mx.array([[0, 5]]), 1.5)),
        ],
        [
            (name, before, keep(before))
            for name, keep in (
                ("top-k 3", lambda x: apply_top_k(x, 3)),
                ("top-p 0.9", lambda x: apply_top_p(x, 0.9)),
                ("min-p 0.1", lambda x: apply_min_p(x, 0.1)),
            )
            for before in (sharp, flat)
        ],
    ]
    panels = [*rows[0], *rows[1][::2], *rows[1][1::2]]
    _, axes = plt.subplots(3, 3, figsize=(8, 5.6), sharey=True, layout="constrained")
    for panel, (name, before, after) in zip(axes.flat, panels, strict=True):
        panel.set_title(name, fontsize=11)
        panel.set(ylim=(0, 1), yticks=(0, 0.5, 1))
        _bars(panel, before, PALE, -0.2)
        bars = _bars(panel, after, BLUE, 0.2)
        if name.startswith("penalty"):
            bars[0].set_color(ORANGE)
            bars[5].set_color(ORANGE)
        if name.startswith("min-p"):
            top = mx.softmax(before, axis=-1).max().item()
            panel.axhline(0.1 * top, color=GREEN, linewidth=1.2, linestyle="--")
        panel.set_xticks(range(6), [f"{score:g}" for score in before[0].tolist()])


def pipeline() -> None:
    """Draw all steps in order on one row of scores. Two of the tokens have occurred in the text."""
    logits, seen = FEW, mx.array([[0, 4]])
    row = [("", logits)]
    for name, step in (
        ("penalty 1.5", lambda x: apply_repetition_penalty(x, seen, 1.5)),
        ("T = 1.5", lambda x: x / 1.5),
        ("top-k 7", lambda x: apply_top_k(x, 7)),
        ("top-p 0.9", lambda x: apply_top_p(x, 0.9)),
        ("min-p 0.4", lambda x: apply_min_p(x, 0.4)),
    ):
        logits = step(logits)
        row.append((name, logits))
    _, axes = plt.subplots(1, 6, figsize=(10, 2.1), sharey=True, layout="constrained")
    for number, (panel, (name, after)) in enumerate(zip(axes, row, strict=True)):
        bars = _bars(panel, after, BLUE, 0, 0.8)
        for token in seen[0].tolist():
            bars[token].set_color(ORANGE)
        panel.set_title(name, fontsize=10)
        panel.set(xticks=[], yticks=(0, 0.2, 0.4), ylim=(0, 0.45))
        if number:
            panel.text(
                -0.06, 0.5, "→", transform=panel.transAxes, ha="center", va="center", fontsize=14, color="#555555"
            )


def _bars(axes: Axes, logits: mx.array, colour: str, shift: float, width: float = 0.4):
    probs = mx.softmax(logits, axis=-1)[0].tolist()
    return axes.bar([token + shift for token in range(len(probs))], probs, width, color=colour)


PICTURES = (steps, pipeline)
