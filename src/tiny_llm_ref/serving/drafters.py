"""Drafters, which cheaply guess the tokens that the model is likely to generate next."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..qwen2 import CausalLM
from .batch import Batch, Chunk
from .cache import RequestCache
from .decoding import Chosen
from .distributions import Probabilities, draw, probabilities
from .engine import batch_logits
from .request import Draft, Request

__all__ = ["Drafter", "ModelDrafter", "NGramDrafter", "propose_by_ngram"]


class Drafter:
    """A source of guesses for several requests at a time. This class guesses nothing."""

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        """Return a draft for each request: guesses of the tokens that follow the request's tokens.

        wanted: pairs of a request and the maximum number of guesses for it. A draft may have fewer guesses, or none.
        """
        return [Draft([]) for _ in wanted]

    def observe(self, chunks: Sequence[Chunk], chosen: Sequence[Chosen]) -> None:
        """Learn from a step that the model has computed: the step's chunks, and what was chosen for each chunk."""

    def forget(self, request: Request) -> None:
        """Drop all data about a finished request."""


def propose_by_ngram(tokens: Sequence[int], count: int, longest: int = 3) -> list[int]:
    """Find where the text's last tokens occurred earlier, and guess the tokens that followed at that place.

    Look up the last `longest` tokens first. If these tokens did not occur earlier, look up one token fewer, and so on,
    down to one token. If the tokens occurred in several earlier places, use the latest place, even if this place
    overlaps the tokens that you look up. The guess is the `count` tokens after that place, or fewer if the text ends
    sooner. The guess is empty if not even the last token occurred earlier, or if `count` is 0.
    Source: Saxena 2023, "Prompt Lookup Decoding".

    Task: w3d6.2
    """
    for n in range(min(longest, len(tokens) - 1), 0, -1):
        pattern = list(tokens[-n:])
        for start in range(len(tokens) - n - 1, -1, -1):
            if list(tokens[start : start + n]) == pattern:
                return list(tokens[start + n : start + n + count])
    return []


class NGramDrafter(Drafter):
    """A drafter that needs no model: it guesses with `propose_by_ngram`, which works well on repetitive text."""

    def __init__(self, longest: int = 3):
        self.longest = longest

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        return [
            Draft(propose_by_ngram(request.tokens, count, self.longest) if count > 0 else [])
            for request, count in wanted
        ]


@dataclass
class _Copy:
    """The part of a request that a drafter's cache holds: a `Stored`.

    tokens: the tokens that the drafter's model has run on, including its own guesses. num_computed_tokens: how many of
    these tokens are committed.
    """

    tokens: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0


class ModelDrafter(Drafter):
    """A drafter that guesses with a smaller model, which has the same vocabulary and a cache of its own.

    copies: the parts of requests that the cache holds, keyed by request. A request outside the cache has no entry.
    """

    def __init__(self, model: CausalLM, cache: RequestCache):
        self.model, self.cache = model, cache
        self.copies: dict[Request, _Copy] = {}

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        """Return a draft for each request: guesses, at most as many as `wanted` says, and the probabilities from which
        these guesses were drawn. Draw the guesses with the request's `params` and `random`.

        `take` returns the chunk on which the model runs to make a request's next guess: at first all of the request's
        tokens that the model has not run on, later the previous guess. One pass of the model makes one guess for each
        request that wants another guess. The model does not run on a request's last guess. If `take` returns None, the
        draft ends with the guesses made so far. Call `keep` for each chunk after which a guess was drawn.

        Task: w3d6.3
        """
        guesses: list[list[int]] = [[] for _ in wanted]
        rows: list[list[Probabilities]] = [[] for _ in wanted]
        for n in range(max((count for _, count in wanted), default=0)):
            chunks: dict[int, Chunk] = {}
            for i, (request, count) in enumerate(wanted):
                if len(guesses[i]) == n < count and (chunk := self.take(request, guesses[i])):
                    chunks[i] = chunk
            if not chunks:
                break
            logits = batch_logits(self.model, Batch(list(chunks.values())), self.cache)
            for row, (i, chunk) in enumerate(chunks.items()):
                request = chunk.request
                rows[i].append(probabilities(request.params, logits[row : row + 1], [request.tokens + guesses[i]]))
                guesses[i].append(draw(rows[i][n][0], request.random))
                self.keep(chunk)
        return [
            Draft(tokens, np.concatenate(found) if found else None) for tokens, found in zip(guesses, rows, strict=True)
        ]

    def take(self, request: Request, guesses: Sequence[int]) -> Chunk | None:
        """Return a chunk of the tokens and guesses that the model has not run on. Only the chunk's last row needs
        logits. Return None if the whole text exceeds the model's context, or if the cache has no room for the chunk."""
        tokens = [*request.tokens, *guesses]
        copy = self._copy(request) if len(tokens) <= self.model.config.max_position_embeddings else None
        if copy is None:
            return None
        if not guesses:  # the previous step's guesses are now tokens of the request, or were rejected
            self._settle(copy, request.tokens)
        start = len(copy.tokens)
        if not self.cache.reserve(copy, len(tokens) - copy.num_computed_tokens):
            return None
        return Chunk(request, tokens[start:], start, 1, copy.pages)

    def keep(self, chunk: Chunk) -> None:
        """Remember that the model has run on this chunk."""
        self.copies[chunk.request].tokens += chunk.tokens

    def _copy(self, request: Request) -> _Copy | None:
        """Return the part of a request that the cache holds. Return None if the cache has no room for the request."""
        if request not in self.copies:
            copy = _Copy(list(request.tokens))
            if not self.cache.open(copy):
                return None
            del copy.tokens[copy.num_computed_tokens :]
            self.copies[request] = copy
        return self.copies[request]

    def _settle(self, copy: _Copy, tokens: Sequence[int]) -> None:
        """Keep and commit only the beginning that a copy has in common with the request, without the request's last
        token: the model has to run on this token to give the logits after it."""
        stored = copy.num_computed_tokens
        while stored < min(len(copy.tokens), len(tokens) - 1) and copy.tokens[stored] == tokens[stored]:
            stored += 1
        del copy.tokens[stored:]
        self.cache.commit(copy, stored)

    def forget(self, request: Request) -> None:
        copy = self.copies.pop(request, None)
        if copy is not None:
            self.cache.close(copy)
