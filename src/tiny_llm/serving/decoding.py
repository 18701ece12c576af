"""The choice of tokens from logits: on day 1, one token for each request, row by row. Given."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

import mlx.core as mx

from tiny_llm_given.finite import check_finite

from .batch import Batch, Chunk
from .cache import RequestCache
from .logprobs import biased, note_logprobs, rows_of
from .request import Request

__all__ = ["Chosen", "Decoding", "next_token"]

Chosen: TypeAlias = list[int] | Exception  # a request's next tokens, or the error that prevented them


class Decoding:
    """A way to choose tokens. In this class, each request's own sampler chooses its next token, without guesses.

    `BatchSampler` (day 2) chooses the tokens of all requests at once, and `Speculative` (day 6) adds guesses.
    """

    def draft(self, batch: Batch, cache: RequestCache, max_length: int) -> Batch:
        """Add guesses to the batch that the scheduler planned, and reserve room for the guesses. Return the new batch.
        This class adds no guesses.

        max_length: how many tokens a request's prompt and output may have together.
        """
        return batch

    def choose(self, chunks: Sequence[Chunk], logits: mx.array) -> list[Chosen]:
        """Return one result for each chunk: the next tokens of the chunk's request (an empty list if the chunk has no
        logits), or the exception that sampling raised.

        Shapes: logits: N x V, num_logits rows for each chunk.
        """
        ends = accumulate(chunk.num_logits for chunk in chunks)
        return [
            _next_tokens(chunk.request, logits[end - 1 : end]) if chunk.num_logits else []
            for chunk, end in zip(chunks, ends, strict=True)
        ]

    def forget(self, request: Request) -> None:
        """Drop all data about a finished request. This class keeps no such data."""


def _next_tokens(request: Request, logits: mx.array) -> Chosen:
    try:
        return [next_token(request, logits)]
    except Exception as error:
        return error


def next_token(request: Request, logits: mx.array) -> int:
    """Return the token that a request's own sampler chooses.

    Shapes: logits: 1 x V, the logits after the request's last token.

    Raises:
        FloatingPointError: a logit is NaN or infinite.
    """
    check_finite(logits)
    changed = mx.array(biased(rows_of(logits), [request])) if request.params.changes_logits else logits
    token = int(request.sampler(changed, mx.array([request.tokens]))[0])
    if request.params.num_logprobs is not None:
        note_logprobs(rows_of(logits), [request], [token])
    return token
