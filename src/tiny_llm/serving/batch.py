"""The batch that one step computes: chunks of several requests' tokens. Given."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .request import Request

__all__ = ["Batch", "Chunk"]


@dataclass(frozen=True)
class Chunk:
    """Consecutive tokens of one request, at positions start to end (exclusive), and the data to compute these tokens.

    num_logits: how many of the chunk's last rows need logits: 0 if tokens of the request are still pending after the
    chunk, otherwise 1 plus the number of guesses (day 6).
    pages: the request's pages, with room for all positions before `end`.
    """

    request: Request
    tokens: Sequence[int]
    start: int
    num_logits: int
    pages: Sequence[int] = ()

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass
class Batch:
    """The plan of one step: chunks of different requests.

    preempted: the ids of the requests that lost their pages to make room for this batch (day 3). num_tokens: T, the
    number of tokens in all chunks together, which is also the number of the step's rows.
    """

    chunks: list[Chunk] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_tokens = sum(len(chunk.tokens) for chunk in self.chunks)

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.num_tokens += len(chunk.tokens)

    def withdraw(self, request: Request) -> None:
        """Remove a request's chunk from the batch, if the batch has such a chunk."""
        self.chunks = [chunk for chunk in self.chunks if chunk.request is not request]
        self.__post_init__()
