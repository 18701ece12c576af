"""The pictures of week 1, day 6: the positions that each step computes, and the tokens into which bytes are cut."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import BLUE, GREEN, GREY, ORANGE

from tiny_llm_ref.models import load

PROMPT, NEW = 4, 5
CELL = 40  # the width of a byte in the picture of tokens


def cost() -> None:
    """Draw a row per step and a column per position: left, each step computes all positions; right, only new ones."""
    _, axes = plt.subplots(1, 2, figsize=(8, 2.9), layout="constrained")
    for panel, once in zip(axes, (False, True), strict=True):
        computed = sum(_step(panel, step, once) for step in range(NEW))
        panel.set_title(f"{computed}", fontsize=14)
        panel.set(xlim=(-0.2, PROMPT + NEW + 1.7), ylim=(0.8 - NEW, 1.1), aspect="equal")
        panel.axis("off")


def _step(axes: Axes, step: int, once: bool) -> int:
    """Draw a step: the prompt, the new positions, and the token that the step chooses. Return how many are computed."""
    length = PROMPT + step
    first = length - 1 if once and step else 0
    for position in range(length):
        colour = BLUE if position < PROMPT else ORANGE
        edge, face = (colour, colour) if position >= first else ("#bbbbbb", "none")
        axes.add_patch(Rectangle((position, -step), 0.86, 0.86, facecolor=face, edgecolor=edge))
    axes.text(length + 0.35, 0.43 - step, "→", ha="center", va="center", color=GREY)
    axes.add_patch(Rectangle((length + 0.8, -step), 0.86, 0.86, facecolor="none", edgecolor=GREEN, linewidth=2))
    return length - first


def tokens() -> str:
    """Return an SVG of some texts: their characters, their bytes, and the tokens of `story`."""
    _, tokenizer = load("story")
    cells, x = [], 10
    for text in ("鍵", "針", "かぜ"):
        ids = tokenizer.encode(text)
        sizes = [len(token) for token in tokenizer.convert_ids_to_tokens(ids)]
        cells += _row(x, 10, [(letter, len(letter.encode())) for letter in text], GREY, 26)
        cells += _row(x, 70, [(f"{byte:02x}", 1) for byte in text.encode()], BLUE, 16)
        cells += _row(x, 130, [(str(token), size) for token, size in zip(ids, sizes, strict=True)], ORANGE, 14)
        x += CELL * len(text.encode()) + 40
    box = f'viewBox="0 0 {x - 30} 190" font-family="DejaVu Sans, Noto Sans CJK JP, sans-serif" text-anchor="middle"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>', '<rect width="100%" height="100%" fill="#fff"/>']
    return "\n".join([*lines, *cells, "</svg>", ""])


def _row(x: int, y: int, contents: list[tuple[str, int]], colour: str, size: int) -> list[str]:
    """Return boxes in a row, each with its text. contents: each box's text and its width in bytes."""
    cells = []
    for text, count in contents:
        width = CELL * count
        box = f'x="{x + 2}" y="{y}" width="{width - 4}" height="46" rx="5" fill="none" stroke="{colour}"'
        cells.append(f'<rect {box} stroke-width="2"/>')
        place = f'x="{x + width // 2}" y="{y + 23 + size * 0.36:.0f}" font-size="{size}" fill="{colour}"'
        cells.append(f"<text {place}>{text}</text>")
        x += width
    return cells


PICTURES = (cost, tokens)
