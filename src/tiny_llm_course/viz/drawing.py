"""Matplotlib figures in the course's font and colours. Import this module only where matplotlib is installed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font

__all__ = ["ACCENT", "BLUE", "DIM", "FONT", "PALE", "Picture", "drawable", "picture"]

FONT = Path(__file__).parent / "fonts" / "NotoSansCJKjp-subset.otf"
INK, DIM, PALE, BLUE, ACCENT = "#1b1d22", "#5d6470", "#e6e8ec", "#2171b5", "#c2410c"
DPI = 150
_STYLE: Any = {
    "font.family": ["Noto Sans CJK JP"],
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # a token may be a dollar sign
    "axes.titlesize": 10,
    "axes.labelcolor": DIM,
    "axes.edgecolor": "#b6bbc4",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": DIM,
    "ytick.color": DIM,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "svg.hashsalt": "tiny-llm",  # so that the same picture always gives the same file
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.08,
}


class Picture:
    """A figure to draw on, and the bytes of the image file once the figure is drawn."""

    def __init__(self, figure: Any):
        self.figure = figure
        self.data = b""


@contextmanager
def picture(width: float, height: float, title: str, format: str = "png") -> Iterator[Picture]:
    """Yield a picture of this size in inches, and set its `data` when the block ends. format: "png" or "svg". In an
    SVG, characters are drawn as shapes."""
    _add_font()
    with matplotlib.rc_context(_STYLE):
        drawn = Picture(Figure(figsize=(width, height), dpi=DPI))
        drawn.figure.suptitle(drawable(title), fontsize=12, fontweight="normal")
        yield drawn
        data = io.BytesIO()
        drawn.figure.savefig(data, format=format, metadata={"Date": None} if format == "svg" else None)
        drawn.data = data.getvalue()


def drawable(text: str) -> str:
    """Replace each character that the font lacks with its code point, since such a character would be drawn as a
    box."""
    return "".join(letter if letter in _glyphs() or letter == "\n" else f"<U+{ord(letter):04X}>" for letter in text)


@cache
def _add_font() -> None:
    fontManager.addfont(FONT)


@cache
def _glyphs() -> frozenset[str]:
    return frozenset(map(chr, get_font(FONT).get_charmap()))
