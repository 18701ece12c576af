"""Draft heads: small networks that guess the next tokens from the model's own vectors. Given."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tiny_llm_native.argmax import argmax

from ..qwen2 import CausalLM
from .batch import Chunk
from .decoding import Chosen
from .drafters import Drafter
from .request import Draft, Request

__all__ = ["DraftHeads", "HeadDrafter", "Vectors"]

Vectors: TypeAlias = NDArray[np.float32]  # N.. x E


class DraftHeads:
    """K small networks, which guess K tokens at once. Head i guesses the token that comes i tokens after the newest.

    Each head reads two vectors of size E: the vector that the model's last norm got where the model chose the newest
    token, and the embedding of the newest token. The model's own last norm and output layer turn the head's result, of
    size E, into logits. The heads compute with NumPy, because for matrices as small as theirs, an operation of MLX
    takes longer to start than to compute.
    Shapes of the weights: eh_proj.weight: K * R x 2E, out_proj.weight: K x E x R, out_proj.bias: K x E.
    Source: Cai et al. 2024, "Medusa", section 2.1, arXiv:2401.10774. Heads that also read the newest token:
    Ankner et al. 2024, "Hydra", section 3, arXiv:2402.05109.
    """

    def __init__(self, weights: Mapping[str, mx.array], eps: float = 1e-6):
        eh_proj, out_proj, bias = (
            np.array(weights[name].astype(mx.float32))
            for name in ("eh_proj.weight", "out_proj.weight", "out_proj.bias")
        )
        self.count, self.eps = len(out_proj), eps
        self.eh_proj, self.out_proj, self.bias = eh_proj, out_proj.swapaxes(1, 2), bias[:, None]

    def __call__(self, hidden: Vectors, embedded: Vectors) -> Vectors:
        """Return one vector for each guess.

        Shapes: hidden, embedded: N x E -> N x K x E.
        """
        x = np.stack([embedded, hidden], axis=1)  # N, 2, E
        x /= np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps)
        x = x.reshape(len(x), -1) @ self.eh_proj.T  # N, K * R
        x /= 1 + np.exp(-x)
        x = x.reshape(len(x), self.count, -1).swapaxes(0, 1)  # K, N, R
        return np.ascontiguousarray((x @ self.out_proj + self.bias).swapaxes(0, 1))


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
