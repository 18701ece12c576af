"""`tiny-llm viz attention`: which tokens each token attends to, in every layer and head."""

from __future__ import annotations

import math
import sys

import numpy as np

from ..ui import CommandError, phrase, show, signs, terminal_width
from .labels import padded, shortened, token_labels
from .output import Output
from .page import attention_page
from .probe import Attention, Probe, given_or

__all__ = ["show_attention"]

LIMIT = 128  # tokens that a page can show
ROWS = 24  # tokens that the text can show, from the end of the prompt
LABEL = 12  # columns of a terminal
DARKNESS = ((0.5, "full"), (0.2, "half"), (0.05, "empty"))  # the smallest weight for each shade


def show_attention(
    output: Output, model: str, impl: str, prompt: str | None, layer: int, head: int, draws_all: bool
) -> None:
    """Print which tokens each token attends to in one head, draw this head or all heads, and write an HTML page with
    all heads."""
    words = output.words
    text = given_or(words("viz_prompt"), prompt)
    probe = Probe(model, impl)
    tokens = probe.prompt(text, LIMIT)
    _check("--layer", layer, probe.layers)
    _check("--head", head, probe.heads)
    pieces = probe.pieces(tokens)
    seen = Attention(probe.name, text, token_labels(pieces), pieces, probe.weights(tokens), layer, head)
    show(words("viz_attention_text", model=seen.model, layer=layer, head=head), bold=True)
    show(_text(seen) + "\n")

    def draw() -> bytes:
        from . import attention_drawing

        return (attention_drawing.draw_all if draws_all else attention_drawing.draw_one)(seen, words)

    output.picture("attention-all.png" if draws_all else "attention.png", draw)
    output.file("attention.html", attention_page(seen, words).encode())


def _check(option: str, value: int, count: int) -> None:
    if not 0 <= value < count:
        raise CommandError(
            "wrong_value", option=option, expected=phrase("viz_of_model", last=count - 1, count=count), got=value
        )


def _text(seen: Attention) -> str:
    """Return a line for each of the last tokens, with a bar of shades, darker for larger weights, and the two keys with
    the largest weights."""
    width = terminal_width(sys.stdout)
    first = max(0, len(seen.labels) - ROWS)
    with_signs = len(seen.labels) + 3 * LABEL + 16 <= width
    lines = [] if first == 0 else ["..."]
    for label, row in list(zip(seen.labels, seen.chosen, strict=True))[first:]:
        best = [key for key in np.argsort(-row, kind="stable")[:2] if row[key] > 0]
        most = "  ".join(f"{row[key]:4.0%} {shortened(seen.labels[key], LABEL)}" for key in best)
        lines.append(f"{padded(label, LABEL)} {''.join(map(_sign, row)) + '  ' if with_signs else ''}{most}".rstrip())
    if with_signs:
        lines.append(
            " " * LABEL + " " + "  ".join(f"{getattr(signs(), piece)} ≥ {least:.0%}" for least, piece in DARKNESS)
        )
    return "\n".join(lines)


def _sign(weight: float) -> str:
    if math.isnan(weight):
        return "?"
    return next((getattr(signs(), piece) for least, piece in DARKNESS if weight >= least), " ")
