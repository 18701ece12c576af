"""Compares a learner's greedy text with the reference's, token for token, by one pass of the reference over the
text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import islice

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ..ui import Messages
from .engine import Engine, Wanted
from .package_protocols import Model

__all__ = ["Compared", "compared"]

REFERENCE = "tiny_llm_ref"
SHOWN = 10  # tokens of each text behind the first difference
CLOSE = 0.01  # logits that differ by less: rounding decides which token is chosen


@dataclass(frozen=True)
class Compared:
    """count: tokens that are the same. yours, theirs: how the texts go on there, "" if one ends; None if they do not
    differ."""

    count: int
    yours: str | None = None
    theirs: str | None = None

    def told(self, words: Messages) -> str:
        if self.yours is None:
            return words("compare_same", count=self.count)
        names = {"yours": self.yours, "theirs": self.theirs}
        shown = {name: repr(text) if text else words("compare_end") for name, text in names.items()}
        return words("compare_differ", number=self.count + 1, **shown)


def compared(wanted: Wanted, prompt: Sequence[int], tokens: Sequence[int], has_ended: bool) -> Compared:
    """Compare new tokens with those that the reference chooses after the same ones.

    has_ended: whether the loop ended because the model ended its text.
    """
    engine = Engine(replace(wanted, package=REFERENCE, is_filled=False))
    ends = list(engine.model.config.eos_token_ids)
    logits = _logits(engine.model, [*prompt, *tokens], len(tokens) + 1)
    said = [[token] for token in tokens] + ([ends] if has_ended else [])
    for i, row in enumerate(logits[: len(said)]):
        if row.max() > row[said[i]].max() + CLOSE:
            return _difference(engine, prompt, tokens, i)
    return Compared(len(tokens))


def _logits(model: Model, tokens: list[int], count: int) -> NDArray[np.float32]:
    """Those of the last `count` positions. Shapes: -> count x V."""
    cache = import_module(f"{REFERENCE}.kv_cache").NoCache(len(model.layers))
    hidden = model.hidden(mx.array([tokens]), cache)[:, -count:]
    return np.array(model.logits(hidden)[0].astype(mx.float32))


def _difference(engine: Engine, prompt: Sequence[int], tokens: Sequence[int], i: int) -> Compared:
    decode: Callable[..., str] = engine.tokenizer.decode
    greedy = import_module(f"{REFERENCE}.sampler").greedy
    theirs = list(islice(engine.tokens([*prompt, *tokens[:i]], greedy, SHOWN), SHOWN))
    return Compared(i, decode(tokens[i : i + SHOWN]), decode(theirs))
