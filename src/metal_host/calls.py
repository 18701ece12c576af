"""Passes kernel calls to a watcher, which can run each call any number of times."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import mlx.core as mx

from .signature import Signature

__all__ = ["KernelCall", "Watcher", "unwatched", "watcher", "watching"]


@dataclass(frozen=True)
class KernelCall:
    """A kernel call that has not run yet.

    texts: body and header, keyed by the file names that messages use for them.
    run: a function that runs the kernel and returns its outputs. Keyword arguments replace the call's own arguments.
    signature: a function that returns the signature of the function around the body, or raises an error if the
    arguments do not fit the kernel.
    """

    name: str
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    texts: Mapping[str, str]
    run: Callable[..., list[mx.array]]
    signature: Callable[[], Signature]

    @property
    def spaces(self) -> dict[str, str]:
        """Return each buffer's address space (device or constant), keyed by the buffer's name in the kernel's body."""
        return {parameter.name: parameter.space for parameter in self.signature().parameters}


Watcher: TypeAlias = Callable[[KernelCall], list[mx.array]]
_watcher: ContextVar[Watcher | None] = ContextVar("metal_host_watcher", default=None)


def watcher() -> Watcher | None:
    """Return the watcher that receives this thread's kernel calls. Return None if there is no watcher."""
    return _watcher.get()


@contextmanager
def watching(by: Watcher | None) -> Iterator[None]:
    """In the block, pass every kernel call of this thread to `by`. The kernel's caller receives what `by` returns.

    If `by` is None, the calls run as usual.
    """
    token = _watcher.set(by)
    try:
        yield
    finally:
        _watcher.reset(token)


def unwatched(kernel: Callable[..., list[mx.array]], **arguments: Any) -> list[mx.array]:
    """Call a kernel without a watcher, and return its outputs."""
    with watching(None):
        return kernel(**arguments)
