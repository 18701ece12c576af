"""A drafter whose guesses come from draft heads. Given."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from tiny_llm_native.argmax import argmax

from ..qwen2 import CausalLM
from .batch import Chunk
from .decoding import Chosen
from .draft_heads import DraftHeads, Vectors
from .drafters import Drafter
from .request import Draft, Request

__all__ = ["HeadDrafter"]


class HeadDrafter(Drafter):
    """A drafter whose guesses come from draft heads, all guesses of a step at once. The guesses are certain.

    It takes the place of the model's last norm, to see the vectors that the norm gets. It needs no cache.
    """

    def __init__(self, model: CausalLM, heads: DraftHeads):
        self.model, self.heads, self._norm = model, heads, model.norm
        self._seen = mx.zeros((0, 1, 1))  # what the norm got last
        self._last: dict[Request, Vectors] = {}  # the vector from which a request's newest token was chosen: E
        self._table = _vectors(model.embed_tokens(mx.arange(model.config.vocab_size)))
        parts: Any = model
        parts.norm = self._see

    def _see(self, x: mx.array) -> mx.array:
        self._seen = x
        return self._norm(x)

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Draft]:
        """Return a draft for each request. The draft is empty if the request got no token in the last step."""
        known = [(request, count) for request, count in wanted if count > 0 and request in self._last]
        if not known:
            return [Draft([]) for _ in wanted]
        hidden = np.stack([self._last[request] for request, _ in known])
        newest = [request.tokens[-1] for request, _ in known]
        guessed = mx.array(self.heads(hidden, self._table[newest])).astype(self._seen.dtype)
        tokens = np.array(argmax(self.model.logits(self._norm(guessed)))).tolist()  # N, K
        drafts = {request: Draft(found[:count]) for (request, count), found in zip(known, tokens, strict=True)}
        return [drafts.get(request, Draft([])) for request, _ in wanted]

    def observe(self, chunks: Sequence[Chunk], chosen: Sequence[Chosen]) -> None:
        seen, end, self._last = _vectors(self._seen), 0, {}
        for chunk, tokens in zip(chunks, chosen, strict=True):
            end += len(chunk.tokens)
            if tokens and not isinstance(tokens, Exception):
                self._last[chunk.request] = seen[end - chunk.num_logits + len(tokens) - 1, 0]

    def forget(self, request: Request) -> None:
        self._last.pop(request, None)


def _vectors(x: mx.array) -> Vectors:
    return np.array(x.astype(mx.float32))
