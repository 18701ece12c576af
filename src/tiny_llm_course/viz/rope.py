"""`tiny-llm viz rope`: how RoPE rotates pairs of numbers by angles that grow with the position, and how this rotation
changes a dot product."""

from __future__ import annotations

import math
from importlib import import_module

import mlx.core as mx
import numpy as np

from ..base.packages import package_of
from ..ui import CommandError, phrase, show, signs
from ..ui.terminal import BAR
from .output import Output
from .rope_turns import Turns

__all__ = ["show_rope"]

MAX_DIMS, MAX_POSITIONS = 512, 4096


def show_rope(output: Output, impl: str, dims: int, base: float, positions: int) -> None:
    """Print and draw how fast pairs rotate, and how a dot product falls with distance."""
    _check(dims, base, positions)
    words = output.words
    turns = _read_off(impl, dims, base, positions)
    show(words("viz_rope_title", **turns.title), bold=True)
    last = dims // 2 - 1
    for pair in sorted({0, last // 4, last // 2, last * 3 // 4, last}):
        show(words("viz_rope_pair", pair=f"{pair:3}", period=f"{turns.period(pair):>12,.1f}"))
    show("\n" + words("viz_rope_scores"), bold=True)
    distances = sorted({0, positions - 1, *(2**i for i in range((positions - 1).bit_length()))})
    for distance in distances:
        score = float(turns.scores[distance])
        show(f"{distance:5} {score:6.2f} {signs().full * round(max(score, 0) * BAR)}".rstrip())
    show()

    def draw() -> bytes:
        from .rope_drawing import draw_rope

        return draw_rope(turns, words)

    output.picture("rope.png", draw)


def _read_off(impl: str, dims: int, base: float, positions: int) -> Turns:
    """Return the cosine and the sine of each pair's angle at each position. The cosine and the sine are the two numbers
    to which the package's RoPE rotates the pair (1, 0)."""
    rope = import_module(f"{package_of(impl)}.positional_encoding").RoPE(dims, positions, base)
    pairs = mx.repeat(mx.array([1.0, 0.0]), dims // 2)  # all first numbers, then all second numbers, as in checkpoints
    turned = np.array(rope(mx.broadcast_to(pairs, (1, positions, 1, dims))))[0, :, 0]  # positions, dims
    return Turns(dims, base, turned[:, : dims // 2], turned[:, dims // 2 :])


def _check(dims: int, base: float, positions: int) -> None:
    if dims % 2 or not 2 <= dims <= MAX_DIMS:
        raise CommandError("wrong_value", option="--dims", expected=phrase("viz_even", last=MAX_DIMS), got=dims)
    if not 1 < base < math.inf:
        raise CommandError("wrong_value", option="--base", expected=phrase("above", least=1), got=base)
    if not 2 <= positions <= MAX_POSITIONS:
        raise CommandError(
            "wrong_value", option="--positions", expected=phrase("from_to", first=2, last=MAX_POSITIONS), got=positions
        )
