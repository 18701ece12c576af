"""Errors that a kernel can cause."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MetalCompileError", "MetalHostError", "MetalKernelError", "Party"]


@dataclass(frozen=True)
class Party:
    """A thread that an error names.

    thread: the thread's number in its threadgroup. file, line: the line that the thread runs; "" and 0 if unknown.
    """

    thread: int
    threadgroup: tuple[int, int, int]
    file: str
    line: int


class MetalHostError(RuntimeError):
    """An error that keeps a kernel from running on this machine."""


class MetalCompileError(MetalHostError):
    """Errors in a kernel's source. The message lists the first errors, each with its file and line."""


class MetalKernelError(MetalHostError):
    """An error of a running kernel. The message names the line of the source and the thread.

    kind: the error in one word, such as "race" or "bounds".
    parties: the threads that the message names; a race has two.
    """

    def __init__(self, message: str, kind: str, parties: Sequence[Party] = ()):
        super().__init__(message)
        self.kind = kind
        self.parties = tuple(parties)
