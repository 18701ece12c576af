"""One page in one file: a template with style, script and data filled in."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..ui import Messages
from .arrays import Array
from .probe import Attention

__all__ = ["attention_page", "filled"]

_PARTS = Path(__file__).parent / "page"
STEPS = 250  # weights are stored in bytes; this number represents a weight of 1
NOT_A_NUMBER = 255
_HOLES = {name: f"{{{name}}}" for name in ("layer", "head", "token")}  # filled in by the page's script
_TEXTS = ("attention", "choose", "map", "maps", "name", "looks_at", "bytes", "position", "nothing", "not_a_number")


def attention_page(seen: Attention, words: Messages) -> str:
    """Return a page that shows every head's weights. The page loads nothing over the network."""
    data = {
        "model": seen.model,
        "labels": seen.labels,
        "bytes": [piece.hex(" ").upper() for piece in seen.pieces],
        "layers": seen.weights.shape[0],
        "heads": seen.weights.shape[1],
        "layer": seen.layer,
        "head": seen.head,
        "steps": STEPS,
        "weights": b64encode(_as_bytes(seen.weights)).decode(),
        "texts": {name: words(f"viz_page_{name}", **_HOLES) for name in _TEXTS},
    }
    return filled("attention", words.language, words("viz_page_attention"), data)


def _as_bytes(weights: Array) -> bytes:
    steps = np.clip(np.round(np.nan_to_num(weights) * STEPS), 0, STEPS)
    encoded: bytes = np.where(np.isnan(weights), NOT_A_NUMBER, steps).astype(np.uint8).tobytes()
    return encoded


def filled(name: str, language: str, title: str, data: dict[str, Any]) -> str:
    """Return the template of this name, filled in with its style, its script, and the data as JSON."""
    parts = {
        "language": language,
        "title": escape(title),
        "style": _read(f"{name}.css"),
        "script": _read(f"{name}.js"),
        "data": json.dumps(data).replace("<", "\\u003c"),  # so that no text ends the script element
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read(f"{name}.html"))


def _read(name: str) -> str:
    return (_PARTS / name).read_text(encoding="utf-8")
