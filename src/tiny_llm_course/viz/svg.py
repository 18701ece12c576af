"""Writes SVG: shapes and texts. `text_width` bounds the width of a text, so texts can be placed without overlaps."""

from __future__ import annotations

from html import escape

from rich.cells import cell_len

__all__ = ["Sheet", "text_width"]

SANS = "'Noto Sans CJK JP', 'Hiragino Sans', 'Yu Gothic', 'Helvetica Neue', Arial, sans-serif"
MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Noto Sans Mono CJK JP', monospace"


def text_width(text: str, size: float) -> float:
    """Return an upper bound on the width of a text in MONO. A text in SANS is no wider."""
    narrow = 2 * len(text) - cell_len(text)
    return size * (0.61 * narrow + 1.02 * (len(text) - narrow))


class Sheet:
    """A drawing to which shapes and texts are added. Later shapes and texts are drawn on top of earlier ones."""

    def __init__(self) -> None:
        self._shapes: list[str] = []

    def shape(self, tag: str, **attributes: object) -> None:
        """Add an element. Pass an attribute such as `stroke-width` as `stroke_width`."""
        told = "".join(f' {key.replace("_", "-")}="{_number(value)}"' for key, value in attributes.items())
        self._shapes.append(f"<{tag}{told}/>")

    def text(
        self, x: float, y: float, text: str, size: float = 11, anchor: str = "start", **attributes: object
    ) -> None:
        """Add a line of text. y: the middle of the line. `mono=True`: write the text in MONO."""
        family = MONO if attributes.pop("mono", False) else SANS
        told = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in attributes.items())
        place = f'x="{_number(x)}" y="{_number(y + 0.36 * size)}" font-size="{_number(size)}" text-anchor="{anchor}"'
        style = f'font-family="{family}" xml:space="preserve"'
        self._shapes.append(f"<text {place} {style}{told}>{escape(text, quote=False)}</text>")

    def svg(self, width: float, height: float, title: str) -> str:
        """Return the whole picture, on a white background."""
        size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>{escape(title)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
        ]
        return "\n".join([*lines, *self._shapes, "</svg>", ""])


def _number(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
