"""Drafters: they guess cheaply what the model is likely to say next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..qwen2 import CausalLM
from .batch import Batch, Chunk
from .cache import RequestCache
from .distributions import Probabilities, draw, probabilities
from .engine import batch_logits
from .prefix_tree import common
from .request import Request

__all__ = ["Draft", "Drafter", "ModelDrafter", "NGramDrafter", "propose_by_ngram"]


@dataclass(frozen=True)
class Draft:
    """Tokens that may come next. probabilities: the row that each was drawn from, k x V; None: they were not drawn."""

    tokens: Sequence[int]
    probabilities: Probabilities | None = None


class Drafter(Protocol):
    """Guesses for several requests at a time."""

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        """For each request at most so many tokens that may follow all its tokens so far: none is allowed, too."""

    def forget(self, id: str) -> None:
        """A request is over."""


def propose_by_ngram(tokens: Sequence[int], count: int, longest: int = 3) -> list[int]:
    """What followed the last time that the text's last tokens stood in it before.

    First the last `longest` tokens are looked up, then one less, down to one. The latest place counts at which they
    stand before the end; up to `count` tokens behind it are the guess. Nothing, if even the last token is new, or if
    `count` is 0.
    Source: Saxena 2023, "Prompt Lookup Decoding".

    Task: w3d6.2
    """
    raise NotImplementedError(
        "Week 3 Day 6 Task 2: propose_by_ngram is yours to write. "
        "Chapter: Speculative decoding. "
        "Test: ./course test w3d6.2"
    )


class NGramDrafter:
    """Guesses by `propose_by_ngram`: it needs no model, and is right where a text repeats itself."""

    def __init__(self, longest: int = 3):
        self.longest = longest

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        return [Draft(propose_by_ngram(request.tokens, count, self.longest)) for request, count in wanted]

    def forget(self, id: str) -> None:
        """Nothing is kept."""


class ModelDrafter:
    """Guesses by a smaller model with the same vocabulary, and a cache of its own."""

    def __init__(self, model: CausalLM, cache: RequestCache):
        self.model, self.cache = model, cache
        self._stored: dict[str, list[int]] = {}  # of each request, the tokens whose keys and values are in the cache

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        """Up to so many tokens for each request, each drawn by the request's own parameters and `random`.

        `take` gives the chunk from which a request's next guess comes: all its tokens that are not stored yet, later
        the guess before. All requests together, in one pass of the model for each guess. The last guess is not run.
        Where `take` finds no room, a request has the guesses that it has by then.

        Task: w3d6.3
        """
        raise NotImplementedError(
            "Week 3 Day 6 Task 3: ModelDrafter.propose is yours to write. "
            "Chapter: Speculative decoding. "
            "Test: ./course test w3d6.3"
        )

    def take(self, request: Request, guesses: Sequence[int]) -> Chunk | None:
        """A chunk of all that is not stored of a request's tokens and these guesses, scored after the last. None: for
        so many tokens the model has no context, or the cache no room."""
        text = request.tokens + list(guesses)
        if len(text) > self.model.config.max_position_embeddings or not self.align(request, text):
            return None
        stored = self._stored[request.id]
        start, tokens = len(stored), text[len(stored) :]
        if not self.cache.can_extend(request.id, len(tokens)):
            return None
        self.cache.extend(request.id, tokens)
        stored += tokens
        return Chunk(request, tokens, start, scored=1)

    def align(self, request: Request, text: Sequence[int]) -> bool:
        """Trim what is stored of a request to what is still true: what it has in common with the text from the
        beginning on, never the last token of it. False: the cache has no room for one more request."""
        if request.id not in self._stored:
            if not self.cache.can_open(text):
                return False
            self.cache.open(request.id, text)
            self._stored[request.id] = list(text[: self.cache.length(request.id)])
        stored = self._stored[request.id]
        kept = min(common(stored, text), len(text) - 1)
        self.cache.trim(request.id, len(stored) - kept)
        del stored[kept:]
        return True

    def forget(self, id: str) -> None:
        if self._stored.pop(id, None) is not None:
            self.cache.close(id)
