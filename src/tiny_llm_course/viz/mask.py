"""`tiny-llm viz mask`: which keys a query may see, given its position, the row's length, or both."""

from __future__ import annotations

import sys
from importlib import import_module

import numpy as np

from ..base.packages import package_of
from ..ui import CommandError, phrase, show, signs, terminal_width
from .arrays import Mask, masks_of
from .labels import padded
from .output import Output

__all__ = ["show_mask"]


MAX_KEYS, MAX_ROWS = 32, 8
MAX_ROOM = 3 * (2 * MAX_KEYS + 5)  # columns that three masks take


def show_mask(output: Output, impl: str, queries: int, keys: int, lengths: str) -> None:
    """Print and draw the three masks of each row of a batch."""
    row_lengths = _lengths(lengths, keys)
    if not 1 <= keys <= MAX_KEYS:
        raise CommandError("wrong_value", option="--keys", expected=phrase("from_to", first=1, last=MAX_KEYS), got=keys)
    if not 1 <= queries <= keys:
        raise CommandError(
            "wrong_value", option="--queries", expected=phrase("viz_keys_of_queries", keys=keys), got=queries
        )
    words = output.words
    causal = np.array(import_module(f"{package_of(impl)}.attention").causal_mask(queries, keys)) == 0  # L, S
    title = words("viz_mask_title", queries=queries, keys=keys, first=keys - queries, last=keys - 1)
    show(title, bold=True)
    for length in row_lengths:
        show("\n" + words("viz_mask_length", length=length, keys=keys))
        show(_text(masks_of(causal, length), [words(f"viz_mask_{name}") for name in ("causal", "padding", "both")]))
    show("\n" + words("viz_mask_legend", seen=signs().full, hidden=signs().empty) + "\n", dim=True)

    def draw() -> bytes:
        from .mask_drawing import draw_mask

        return draw_mask(causal, row_lengths, title, words)

    output.picture("mask.png", draw)


def _text(masks: list[Mask], names: list[str]) -> str:
    L, S = masks[0].shape
    room = terminal_width(sys.stdout) if sys.stdout.isatty() else MAX_ROOM
    gap = " " if room >= 2 * S + 5 else ""
    width = max((1 + len(gap)) * S, 16) + 5
    beside = max(1, room // width)  # number of masks next to each other
    lines = []
    for first in range(0, len(masks), beside):
        lines.append("".join(padded(f"     {name}", width) for name in names[first : first + beside]))
        for query in range(L):
            cells = (gap.join(map(_sign, mask[query])) for mask in masks[first : first + beside])
            lines.append("".join(padded(f"{S - L + query:4} {row}", width) for row in cells))
    return "\n".join(line.rstrip() for line in lines)


def _sign(is_seen: bool) -> str:
    return signs().full if is_seen else signs().empty


def _lengths(text: str, keys: int) -> list[int]:
    parts = text.split(",")
    lengths = [int(part) for part in parts if part.strip().isdecimal()]
    if len(lengths) < len(parts) or not all(0 <= length <= keys for length in lengths) or len(lengths) > MAX_ROWS:
        expected = phrase("viz_lengths", rows=MAX_ROWS, keys=keys)
        raise CommandError("wrong_value", option="--lengths", expected=expected, got=text)
    return lengths
