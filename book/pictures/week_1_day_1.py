"""The pictures of week 1, day 1, drawn with numbers from the day's own functions."""

import math

import matplotlib.pyplot as plt
import mlx.core as mx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import BLUE, GREEN, GREY, ORANGE

from tiny_llm_ref.attention import scaled_dot_product_attention_simple
from tiny_llm_ref.basics import softmax


def attention() -> None:
    """Draw Q K^T / sqrt(D), the softmax, and the product with V. One query is framed in each of them."""
    L, S, D = 3, 5, 4
    random = np.random.default_rng(4)
    q, k, v = (mx.array(random.standard_normal((rows, D)).round(1), mx.float32) for rows in (L, S, S))
    scores = q @ k.T / math.sqrt(D)
    output = scaled_dot_product_attention_simple(q, k, v)
    axes = _canvas(19, 11.6, 9)
    _matrix(axes, 0, 0.8, q, ORANGE, "Q", "L", "D", framed=1)
    _matrix(axes, 5.5, 0.3, k.T, BLUE, "Kᵀ", "D", "S")
    _matrix(axes, 13.5, 0.8, scores, GREY, "Q Kᵀ / √D", "L", "S", framed=1)
    _matrix(axes, 0, 7.3, softmax(scores), GREY, "softmax(Q Kᵀ / √D)", "L", "S", framed=1)
    _matrix(axes, 7, 6.3, v, GREEN, "V", "S", "D")
    _matrix(axes, 13.5, 7.3, output, "#222222", "output", "L", "D", framed=1)
    for x, y, sign in ((4.45, 2.3, "·"), (12, 2.3, "="), (5.75, 8.8, "·"), (12, 8.8, "=")):
        axes.text(x, y, sign, ha="center", va="center", fontsize=18)


def heads() -> None:
    """Draw three tokens of four columns, cut into two heads: with a transpose, and by a reshape alone."""
    L, H, D = 3, 2, 2
    x = np.array([[10 * token + column for column in range(H * D)] for token in range(L)])
    axes = _canvas(19.5, 4.9, 9)
    _tokens(axes, 6.6, x, "x")
    ways = (
        (0, x.reshape(H, L, D), "reshape(H, L, D)"),
        (12.9, x.reshape(L, H, D).swapaxes(0, 1), "reshape(L, H, D).swapaxes(0, 1)"),
    )
    for left, split, title in ways:
        for h in range(H):
            _tokens(axes, left + 2.7 * h, split[h], "")
            axes.text(left + 2.7 * h + 1, 4.5, f"h = {h}", ha="center", va="center", color=GREY)
        axes.text(left + 2.35, 0.1, title, ha="center", va="center", fontsize=9.5, family="monospace")
    for x, way, sign, colour in ((5.65, -0.7, "✗", ORANGE), (11.75, 0.7, "✓", GREEN)):
        axes.annotate("", (x + way, 2.5), (x - way, 2.5), arrowprops={"arrowstyle": "->", "color": GREY})
        axes.text(x, 1.8, sign, ha="center", va="center", fontsize=15, color=colour, family="DejaVu Sans")


def _canvas(width: float, height: float, inches: float) -> Axes:
    _, axes = plt.subplots(figsize=(inches, inches * height / width))
    axes.set(xlim=(-1, width), ylim=(height, -0.6), aspect="equal")
    axes.axis("off")
    return axes


def _matrix(
    axes: Axes, left: float, top: float, array: mx.array, colour: str, title: str, rows: str, columns: str, framed=None
) -> None:
    """Draw an array as a grid of cells, darker for larger numbers, with the sizes at the sides."""
    numbers = np.array(array)
    L, D = numbers.shape
    for i, j in np.ndindex(L, D):
        shade = min(0.7, 0.3 * abs(numbers[i, j])) if numbers.min() < 0 else 0.8 * numbers[i, j]
        axes.add_patch(Rectangle((left + j, top + i), 1, 1, facecolor=colour, alpha=shade, lw=0))
        axes.add_patch(Rectangle((left + j, top + i), 1, 1, fill=False, edgecolor="#bbbbbb", lw=0.6))
        digits = 2 if (rows, columns) == ("L", "S") else 1
        text = f"{round(float(numbers[i, j]), digits) + 0.0:.{digits}f}".replace("-", "−")  # + 0.0 turns -0.0 into 0.0
        axes.text(left + j + 0.5, top + i + 0.5, text, ha="center", va="center", fontsize=7.5)
    if framed is not None:
        axes.add_patch(Rectangle((left, top + framed), D, 1, fill=False, edgecolor="black", lw=2))
    axes.text(left + D / 2, top - 0.5, title, ha="center", va="center", color=colour)
    axes.text(left - 0.4, top + L / 2, rows, ha="center", va="center", style="italic", fontsize=10)
    axes.text(left + D / 2, top + L + 0.45, columns, ha="center", va="center", style="italic", fontsize=10)


def _tokens(axes: Axes, left: float, numbers: np.ndarray, title: str) -> None:
    """Draw cells, each in the colour of the token that the number comes from."""
    for i, j in np.ndindex(*numbers.shape):
        colour = (BLUE, ORANGE, GREEN)[numbers[i, j] // 10]
        axes.add_patch(Rectangle((left + j, 1 + i), 1, 1, facecolor=colour, alpha=0.35, edgecolor="white", lw=2))
        axes.text(left + j + 0.5, 1.5 + i, str(numbers[i, j]), ha="center", va="center")
    axes.text(left + numbers.shape[1] / 2, 0.1, title, ha="center", va="center", fontsize=9.5, family="monospace")


PICTURES = (attention, heads)
