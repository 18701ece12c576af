"""Speculative decoding: a step checks several guesses, and the tokens have the same distribution as without guesses."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import mlx.core as mx
import numpy as np

from .batch import Batch, Chunk
from .cache import RequestCache
from .decoding import Chosen, Decoding
from .distributions import Probabilities, draw, probabilities
from .draft_length import DraftLength
from .drafters import Drafter
from .request import Draft, Request

__all__ = ["Speculative", "accept"]


def accept(target: Probabilities, draft: Draft, random: np.random.Generator) -> list[int]:
    """Return the next tokens: the guesses before the first rejected guess, and one more token that is drawn here.

    Guess i is accepted with probability min(1, p / q), where p and q are its probabilities in row i of target and
    draft. In place of the first rejected guess, a token is drawn from max(target - draft, 0) of that row. If no guess
    is rejected, one more token is drawn from the last row of target. So the tokens have the same distribution as tokens
    drawn from target alone. Guesses without probabilities were certain: q is 1 for the guess, and 0 for every other
    token.
    random: the generator. Call `random.random()` once for each guess that you check; `draw` needs the generator, too.
    Shapes: target: (k + 1) x V, for k guesses -> 1 to k + 1 tokens.
    Source: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", section 2.3,
    arXiv:2211.17192.

    Task: w3d6.1
    """
    raise NotImplementedError(
        "Week 3 Day 6 Task 1: accept is yours to write. Chapter: Speculative decoding. Test: ./course test w3d6.1"
    )


class Speculative(Decoding):
    """A `Decoding` that adds guesses to a step's tokens. A request gets one more token for each accepted guess.

    The scheduler's budget counts neither the guesses nor the tokens that the drafter computes.
    drafter: the object that makes the guesses. num_drafts: how many guesses a request gets at most in a step. plain:
    the `Decoding` that chooses the tokens of chunks without guesses. length: the object that chooses the number of
    guesses, up to num_drafts, for each request. By default, each request gets num_drafts guesses.
    """

    def __init__(
        self,
        drafter: Drafter,
        num_drafts: int = 4,
        plain: Decoding | None = None,
        length: DraftLength | None = None,
    ):
        _check_num_drafts(num_drafts)
        self.drafter, self.num_drafts = drafter, num_drafts
        self.plain = Decoding() if plain is None else plain
        self.length = DraftLength() if length is None else length

    def draft(self, batch: Batch, cache: RequestCache, max_length: int) -> Batch:
        """Let the drafter guess, in one call, for all chunks that need logits. Add the guesses to these chunks."""
        requests = [chunk.request for chunk in batch.chunks if chunk.num_logits]
        wanted = [(request, self.wanted(request, max_length, len(requests))) for request in requests]
        for request, draft in zip(requests, self.drafter.propose(wanted), strict=True):
            request.draft = draft
        chunks = [
            replace(self.with_draft(chunk, cache), pages=chunk.request.pages) if chunk.num_logits else chunk
            for chunk in batch.chunks
        ]  # `reserve` may have put the pages into a new list
        return Batch(chunks, batch.preempted)

    def wanted(self, request: Request, max_length: int, num_requests: int) -> int:
        """Return how many guesses are useful, at most num_drafts. max_tokens and max_length limit how many tokens the
        request may still get, and one of these tokens needs no guess. num_requests: how many requests get tokens in
        this step."""
        left = request.params.max_tokens - len(request.output)
        count = self.length.choose(request, self.num_drafts, num_requests)
        return min(count, left - 1, max_length - request.num_tokens - 1)

    def with_draft(self, chunk: Chunk, cache: RequestCache) -> Chunk:
        """Return the chunk with the guesses of `request.draft` after the chunk's tokens. The row of each guess needs
        logits, too.

        `cache` reserves room for all tokens of the new chunk, guesses included. If there is no room, the request gets a
        draft without guesses, and the chunk stays as it is.

        Task: w3d6.4
        """
        raise NotImplementedError(
            "Week 3 Day 6 Task 4: Speculative.with_draft is yours to write. "
            "Chapter: Speculative decoding. "
            "Test: ./course test w3d6.4"
        )

    def choose(self, chunks: Sequence[Chunk], logits: mx.array) -> list[Chosen]:
        """Call `next_tokens` for each chunk that has guesses, and `plain.choose` once for all other chunks. Show the
        result to the drafter."""
        ends = list(accumulate(chunk.num_logits for chunk in chunks))
        others = [i for i, chunk in enumerate(chunks) if chunk.num_logits <= 1]
        rows = [ends[i] - 1 for i in others if chunks[i].num_logits]
        left = logits if len(others) == len(chunks) else logits[mx.array(rows, mx.int32)]
        plain = dict(zip(others, self.plain.choose([chunks[i] for i in others], left), strict=True))
        chosen = [
            plain[i] if i in plain else self._choose(chunk, logits[end - chunk.num_logits : end])
            for i, (chunk, end) in enumerate(zip(chunks, ends, strict=True))
        ]
        self.drafter.observe(chunks, chosen)
        return chosen

    def _choose(self, chunk: Chunk, logits: mx.array) -> Chosen:
        try:
            tokens = self.next_tokens(chunk, logits)
        except Exception as error:
            return error
        self.length.note(chunk.request, chunk.num_logits - 1, len(tokens) - 1)
        return tokens

    def next_tokens(self, chunk: Chunk, logits: mx.array) -> list[int]:
        """Return the next tokens, as `accept` says. Count in the request how many tokens were guessed for it, and how
        many of these guesses were accepted.

        `probabilities` needs the tokens so far for each row: for row i, the request's tokens and the first i guesses.
        Shapes: logits: (k + 1) x V, for the k guesses of `request.draft`.

        Task: w3d6.4
        """
        raise NotImplementedError(
            "Week 3 Day 6 Task 4: Speculative.next_tokens is yours to write. "
            "Chapter: Speculative decoding. "
            "Test: ./course test w3d6.4"
        )

    def forget(self, request: Request) -> None:
        self.drafter.forget(request)
        self.plain.forget(request)
        self.length.forget(request)


def _check_num_drafts(num_drafts: int) -> None:
    if num_drafts < 1:
        raise ValueError(f"num_drafts: expected 1 or more, got {num_drafts}")
