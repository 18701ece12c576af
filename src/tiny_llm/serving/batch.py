"""What one step computes: some tokens of each of some requests. Given."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .request import Request

__all__ = ["Batch", "Chunk"]


@dataclass(frozen=True)
class Chunk:
    """Consecutive tokens of one request, at positions start to end. Computing them needs nothing else of the request.

    num_logits: the logits after so many of its last tokens are needed. None where more of the prompt is to come, one
    otherwise, and one more for each token that was guessed.
    pages: those of the request, with room for all positions up to end.
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
    """Chunks of different requests. preempted: the ids of requests that lost their pages to make room for it.

    num_tokens: of all chunks: T, the rows of the step.
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
