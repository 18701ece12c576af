"""What one step computes: some tokens of each of some requests. Given."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .request import Request

__all__ = ["Batch", "Chunk"]


@dataclass(frozen=True)
class Chunk:
    """Consecutive tokens of one request, at positions start to end (exclusive), and all that is needed to compute them.

    num_logits: how many of its rows, the last ones, need logits: 0 if the request has more pending tokens, otherwise 1,
    and 1 more for each guessed token (day 6).
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

    preempted: the ids of the requests that lost their pages to make room for it (day 3). num_tokens: how many tokens
    all chunks have together; this is T, the rows of the step.
    """

    chunks: list[Chunk] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_tokens = sum(len(chunk.tokens) for chunk in self.chunks)

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.num_tokens += len(chunk.tokens)

    def withdraw(self, request: Request) -> None:
        """Take back the chunk of a request, if it has one."""
        self.chunks = [chunk for chunk in self.chunks if chunk.request is not request]
        self.__post_init__()
