"""Speculative decoding: several guesses are checked in one step; what comes out is what the model alone would say."""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx
import numpy as np

from ..qwen2 import CausalLM
from .batch import Batch, Chunk
from .distributions import Probabilities, draw, probabilities
from .drafters import Draft, Drafter
from .engine import Engine, Observer
from .request import Request
from .scheduler import Scheduler

__all__ = ["SpeculativeEngine", "accept"]


def accept(target: Probabilities, draft: Draft, random: np.random.Generator) -> list[int]:
    """The tokens that come next: the guesses up to the first that is rejected, and one more token of the model's own.

    Guess i is accepted with probability min(1, p / q), where p and q are its probabilities in row i of target and
    draft. In place of the first that is rejected, a token is drawn from max(target - draft, 0) of that row; after all
    of them, from the last target row. So the tokens have the distribution that drawing from the target alone has.
    Guesses without probabilities were certain: their q is 1, that of every other token 0.
    random: one `random.random()` decides on each guess; `draw` needs it as well.
    Shapes: target: (k + 1) x V, for k guesses -> 1 to k + 1 tokens.
    Source: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", section 2.3,
    arXiv:2211.17192.

    Task: w3d6.1
    """
    for i, token in enumerate(draft.tokens):
        row = np.zeros_like(target[i])
        row[token] = 1
        if draft.probabilities is not None:
            row = draft.probabilities[i]
        if random.random() * row[token] >= target[i, token]:
            rest = np.maximum(target[i] - row, 0)
            return [*draft.tokens[:i], draw(rest if rest.any() else target[i], random)]
    return [*draft.tokens, draw(target[-1], random)]


class SpeculativeEngine(Engine):
    """An engine that adds guesses to what a step computes, and gets several tokens from a step where they are right.

    Guesses come on top of what a scheduler's budget allows, and so does what the drafter computes.
    drafter: who guesses. num_drafts: how many tokens at most, for each request and step. drafts: by request, what was
    guessed for the step at hand.
    """

    def __init__(
        self,
        model: CausalLM,
        scheduler: Scheduler,
        drafter: Drafter,
        num_drafts: int = 4,
        observers: Sequence[Observer] = (),
        is_checked: bool = False,
    ):
        super().__init__(model, scheduler, observers, is_checked)
        _check_num_drafts(num_drafts)
        self.drafter, self.num_drafts = drafter, num_drafts
        self.drafts: dict[str, Draft] = {}

    def wanted(self, request: Request) -> int:
        """How many guesses are of use: one token comes without any, and max_tokens and max_length are limits."""
        left = request.params.max_tokens - len(request.output)
        return min(self.num_drafts, left - 1, self.max_length - len(request.tokens) - 1)

    def plan(self) -> Batch:
        """As in `Engine`, with guesses: `propose` asks for them, `with_draft` puts them behind each scored chunk."""
        batch = super().plan()
        try:
            self.propose([chunk.request for chunk in batch.chunks if chunk.scored])
        except BaseException:  # what the drafter has stored may be half of what it means to have
            self._undo(batch)
            for chunk in batch.chunks:
                self.drafter.forget(chunk.request.id)
            raise
        return replace(batch, chunks=[self.with_draft(chunk) if chunk.scored else chunk for chunk in batch.chunks])

    def propose(self, requests: Sequence[Request]) -> None:
        """Let the drafter guess for these requests, all at once, and keep what it says in `drafts`."""
        drafts = self.drafter.propose([(request, self.wanted(request)) for request in requests])
        self.drafts = {request.id: draft for request, draft in zip(requests, drafts, strict=True)}

    def with_draft(self, chunk: Chunk) -> Chunk:
        """The chunk with its request's guesses behind its tokens, scored after each of them as well. The cache makes
        room for them. Where it has none, the guesses are dropped, from `drafts` too, and the chunk stays as it is.

        Task: w3d6.4
        """
        id, cache = chunk.request.id, self.scheduler.cache
        if not cache.can_extend(id, len(self.drafts[id].tokens)):
            self.drafts[id] = Draft([])
        guesses = self.drafts[id].tokens
        cache.extend(id, guesses)
        return replace(chunk, tokens=[*chunk.tokens, *guesses], scored=1 + len(guesses))

    def next_tokens(self, chunk: Chunk, logits: mx.array) -> list[int]:
        """`accept` says which tokens come next. What is stored of rejected guesses is trimmed; the request counts how
        many were guessed for it, and how many of them were accepted.

        Shapes: logits: (k + 1) x V, for k guesses.

        Task: w3d6.4
        """
        request, draft = chunk.request, self.drafts[chunk.request.id]
        texts = [request.tokens + list(draft.tokens[:i]) for i in range(len(draft.tokens) + 1)]
        tokens = accept(probabilities(request.params, logits, texts), draft, request.random)
        self.scheduler.cache.trim(request.id, len(draft.tokens) - (len(tokens) - 1))
        request.num_drafted += len(draft.tokens)
        request.num_accepted += len(tokens) - 1
        return tokens

    def settle(self, batch: Batch, logits: Sequence[mx.array]) -> list[Request]:
        touched = super().settle(batch, logits)
        for request in touched:
            if request.finish_reason is not None:
                self.drafter.forget(request.id)
        return touched

    def abort(self, id: str, error: Exception | None = None) -> Request | None:
        self.drafter.forget(id)
        return super().abort(id, error)


def _check_num_drafts(num_drafts: int) -> None:
    if num_drafts < 1:
        raise ValueError(f"num_drafts: expected 1 or more, got {num_drafts}")
