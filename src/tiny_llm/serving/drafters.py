"""Drafters: they guess cheaply what the model is likely to say next."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..qwen2 import CausalLM
from .batch import Batch, Chunk
from .cache import RequestCache
from .distributions import Probabilities, draw, probabilities
from .engine import batch_logits
from .request import Draft, Request

__all__ = ["Drafter", "ModelDrafter", "NGramDrafter", "propose_by_ngram"]


class Drafter(Protocol):
    """A source of guesses for several requests at a time."""

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        """Return, for each request, up to so many tokens that may follow all its tokens so far; there may be none."""

    def forget(self, request: Request) -> None:
        """Note that a request is over."""


def propose_by_ngram(tokens: Sequence[int], count: int, longest: int = 3) -> list[int]:
    """Look up where the text's last tokens occurred before, and guess what followed them there.

    First the last `longest` tokens are looked up; if they are new, one token fewer is looked up, and so on, down to
    one. Of several places before the end, the latest counts, even if it overlaps with the end. The guess is up to
    `count` tokens after that place. It is empty if even the last token is new, or if `count` is 0.
    Source: Saxena 2023, "Prompt Lookup Decoding".

    Task: w3d6.2
    """
    raise NotImplementedError(
        "Week 3 Day 6 Task 2: propose_by_ngram is yours to write. "
        "Chapter: Speculative decoding. "
        "Test: ./course test w3d6.2"
    )


class NGramDrafter:
    """A drafter that guesses by `propose_by_ngram`: it needs no model, and is right where a text repeats itself."""

    def __init__(self, longest: int = 3):
        self.longest = longest

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        return [Draft(propose_by_ngram(request.tokens, count, self.longest)) for request, count in wanted]

    def forget(self, request: Request) -> None:
        """Do nothing: nothing is kept."""


@dataclass
class _Copy:
    """The part of a request that a drafter's cache holds: a `Stored`.

    tokens: those that the drafter's model has run on, including its own guesses. num_computed_tokens: how many of them
    are committed.
    """

    tokens: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0


class ModelDrafter:
    """A drafter that guesses by a smaller model with the same vocabulary, and has a cache of its own.

    copies: what the cache holds of each request for which there was room.
    """

    def __init__(self, model: CausalLM, cache: RequestCache):
        self.model, self.cache = model, cache
        self.copies: dict[Request, _Copy] = {}

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        """Return up to so many tokens for each request, each drawn by the request's own parameters and `random`.

        `take` gives the chunk from which a request's next guess comes: at first all its tokens that the model has not
        run on, later the guess before. One pass of the model gives a guess for all requests that want one more. The
        model does not run on a request's last guess. If `take` returns None, the request has the guesses that it has by
        then. Call `keep` for each chunk that gave a guess.

        Task: w3d6.3
        """
        raise NotImplementedError(
            "Week 3 Day 6 Task 3: ModelDrafter.propose is yours to write. "
            "Chapter: Speculative decoding. "
            "Test: ./course test w3d6.3"
        )

    def take(self, request: Request, guesses: Sequence[int]) -> Chunk | None:
        """Return a chunk of all of a request's tokens and these guesses that the model has not run on, with logits
        after the last. Return None if the model's context is too short for them, or the cache has no room."""
        tokens = [*request.tokens, *guesses]
        copy = self._copy(request) if len(tokens) <= self.model.config.max_position_embeddings else None
        if copy is None:
            return None
        if not guesses:  # those of the step before are tokens of the request now, or were rejected
            self._settle(copy, request.tokens)
        start = len(copy.tokens)
        if not self.cache.reserve(copy, len(tokens) - copy.num_computed_tokens):
            return None
        return Chunk(request, tokens[start:], start, 1, copy.pages)

    def keep(self, chunk: Chunk) -> None:
        """Note that the model has run on this chunk."""
        self.copies[chunk.request].tokens += chunk.tokens

    def _copy(self, request: Request) -> _Copy | None:
        """Return what is held of a request; None: the cache has no room for it."""
        if request not in self.copies:
            copy = _Copy(list(request.tokens))
            if not self.cache.open(copy):
                return None
            del copy.tokens[copy.num_computed_tokens :]
            self.copies[request] = copy
        return self.copies[request]

    def _settle(self, copy: _Copy, tokens: Sequence[int]) -> None:
        """Keep and commit only the beginning that a copy has in common with the request, without the request's last
        token: the model has to run on that one, for its logits."""
        stored = copy.num_computed_tokens
        while stored < min(len(copy.tokens), len(tokens) - 1) and copy.tokens[stored] == tokens[stored]:
            stored += 1
        del copy.tokens[stored:]
        self.cache.commit(copy, stored)

    def forget(self, request: Request) -> None:
        copy = self.copies.pop(request, None)
        if copy is not None:
            self.cache.close(copy)
