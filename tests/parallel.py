"""Contexts that change how kernels share their work among threads, and what memory kernels may read.

Call a kernel once before you enter a context, so that a stub raises its error before the MLX extension is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["assert_shared", "guarded", "parts_of", "race_injection", "threads"]


@contextmanager
def threads(impl: Any, count: int) -> Iterator[None]:
    """Let kernels use this many threads in the block."""
    extension = impl.native.extension
    before = extension.threads()
    extension.set_threads(count)
    try:
        yield
    finally:
        extension.set_threads(before)


def parts_of(impl: Any, run: Callable[[], object]) -> int:
    """Return how many parts of work the kernels that `run` calls share out among several threads."""
    before = impl.native.extension.shared_parts()
    run()
    return int(impl.native.extension.shared_parts() - before)


def assert_shared(impl: Any, run: Callable[[], object]) -> None:
    """Fail unless the kernels that `run` calls share their work among several threads."""
    __tracebackhide__ = True
    if parts_of(impl, run) < 2:
        pytest.fail(
            "the work was not shared: one thread did all of it. Is `threads` called with all of the work, and with a "
            "grain that is smaller than that?"
        )


@contextmanager
def race_injection(impl: Any) -> Iterator[None]:
    """In the block, stop the first part of each kernel's work in the middle, until all other parts are done."""
    extension = impl.native.extension
    extension.set_race_injection(True)
    try:
        yield
    finally:
        extension.set_race_injection(False)


@contextmanager
def guarded(impl: Any) -> Iterator[None]:
    """In the block, raise an error if a kernel reads past the end of an input, even if the value is not used."""
    extension = impl.native.extension
    extension.guard_inputs(True)
    try:
        yield
    finally:
        extension.guard_inputs(False)
