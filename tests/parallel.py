"""How kernels share their work, for the time of a block. A block begins behind the first kernel of a test: a stub
raises there, before anything is asked of the bridge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["interrupted", "threads"]


@contextmanager
def threads(impl: Any, count: int) -> Iterator[None]:
    """Kernels use this many threads."""
    extension = impl.kernels.extension
    before = extension.threads()
    extension.set_threads(count)
    try:
        yield
    finally:
        extension.set_threads(before)


@contextmanager
def interrupted(impl: Any) -> Iterator[None]:
    """The first part of a kernel's work is stopped in its middle until all others are done."""
    extension = impl.kernels.extension
    extension.interrupt_parts(True)
    try:
        yield
    finally:
        extension.interrupt_parts(False)
