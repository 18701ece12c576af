"""Compares a learner's greedy text, token by token, with the tokens that the reference would choose. The reference
reads the learner's text in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import islice

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from ..base.packages import REFERENCE
from ..model.loaded_model import LoadedModel, Wanted
from ..model.package_protocols import Model
from ..ui import Messages

__all__ = ["Compared", "compared"]

SHOWN = 10  # of each text, the number of tokens that are shown, from the first difference onwards
CLOSE = 0.01  # if two logits differ by less than this, rounding decides which one is larger


@dataclass(frozen=True)
class Compared:
    """A comparison of a learner's text with the reference's text.

    count: the number of equal tokens before the first difference. yours, theirs: the learner's and the reference's text
    from the first difference onwards, or "" for a text that has ended. Both are None if the texts do not differ.
    """

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
    """Compare each new token with the token that the reference chooses after the same text.

    has_ended: whether generation stopped because the model chose an end-of-sequence token.
    """
    engine = LoadedModel(replace(wanted, package=REFERENCE, is_filled=False))
    ends = list(engine.model.config.eos_token_ids)
    logits = _logits(engine.model, [*prompt, *tokens], len(tokens) + 1)
    said = [[token] for token in tokens] + ([ends] if has_ended else [])
    for i, row in enumerate(logits[: len(said)]):
        if row.max() > row[said[i]].max() + CLOSE:
            return _difference(engine, prompt, tokens, i)
    return Compared(len(tokens))


def _logits(model: Model, tokens: list[int], count: int) -> NDArray[np.float32]:
    """Return the logits at the last `count` positions. Shapes: -> count x V."""
    cache = import_module(f"{REFERENCE}.kv_cache").NoCache(len(model.layers))
    hidden = model.hidden(mx.array([tokens]), cache)[:, -count:]
    return np.array(model.logits(hidden)[0].astype(mx.float32))


def _difference(engine: LoadedModel, prompt: Sequence[int], tokens: Sequence[int], i: int) -> Compared:
    decode: Callable[..., str] = engine.tokenizer.decode
    greedy = import_module(f"{REFERENCE}.sampler").greedy
    theirs = list(islice(engine.tokens([*prompt, *tokens[:i]], greedy, SHOWN), SHOWN))
    return Compared(i, decode(tokens[i : i + SHOWN]), decode(theirs))
