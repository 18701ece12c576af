"""What can be wrong with a kernel."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MetalCompileError", "MetalHostError", "MetalKernelError", "Party"]


@dataclass(frozen=True)
class Party:
    """A thread that an error names: its number in its threadgroup, and the line that it is at, or "" and 0."""

    thread: int
    threadgroup: tuple[int, int, int]
    file: str
    line: int


class MetalHostError(RuntimeError):
    """A kernel cannot be run here: the reason."""


class MetalCompileError(MetalHostError):
    """A kernel's source does not compile: the first errors, with file and line."""


class MetalKernelError(MetalHostError):
    """A kernel did what none may do: what, where in its source, and which thread.

    kind: the same in one word, such as "race" or "bounds". parties: the threads that the message names, of a race two.
    """

    def __init__(self, message: str, kind: str, parties: Sequence[Party] = ()):
        super().__init__(message)
        self.kind = kind
        self.parties = tuple(parties)
