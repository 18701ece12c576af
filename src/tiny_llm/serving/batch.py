"""What one step computes: some tokens of each of some requests."""

from collections.abc import Sequence
from dataclasses import dataclass

from .request import Request

__all__ = ["Batch", "Chunk"]


@dataclass(frozen=True)
class Chunk:
    """Tokens of one request that follow each other, at positions start to end.

    scored: after how many of the last ones the model's scores are needed. After none where more of the prompt is to
    come, after the last one otherwise.
    """

    request: Request
    tokens: Sequence[int]
    start: int
    scored: int

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True)
class Batch:
    """Chunks of different requests. preempted: the ids of requests that had to leave the cache for it."""

    chunks: Sequence[Chunk]
    preempted: Sequence[str] = ()

    @property
    def num_tokens(self) -> int:
        """Of all chunks: T, the rows of the step."""
        return sum(len(chunk.tokens) for chunk in self.chunks)
