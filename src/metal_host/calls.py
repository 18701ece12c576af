"""Calls of kernels, seen from outside: whoever watches makes each call himself, as often as he likes."""

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
    """A call that somebody wants to make.

    texts: body and header, by the names that messages give them. run: makes it; may be given other arguments than it
    was called with. signature: of the function around the body, if the arguments fit.
    """

    name: str
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    texts: Mapping[str, str]
    run: Callable[..., list[mx.array]]
    signature: Callable[[], Signature]

    @property
    def spaces(self) -> dict[str, str]:
        """The address space of each buffer, by its name in the body: device or constant."""
        return {parameter.name: parameter.space for parameter in self.signature().parameters}


Watcher: TypeAlias = Callable[[KernelCall], list[mx.array]]
_watcher: ContextVar[Watcher | None] = ContextVar("metal_host_watcher", default=None)


def watcher() -> Watcher | None:
    """Return what makes the calls of this thread now."""
    return _watcher.get()


@contextmanager
def watching(by: Watcher | None) -> Iterator[None]:
    """Hands over every call of a kernel that this thread makes within. What `by` returns is what the caller gets.

    None: nobody watches.
    """
    token = _watcher.set(by)
    try:
        yield
    finally:
        _watcher.reset(token)


def unwatched(kernel: Callable[..., list[mx.array]], **arguments: Any) -> list[mx.array]:
    """Return what a kernel gives, where nothing watches."""
    with watching(None):
        return kernel(**arguments)
