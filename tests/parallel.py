"""How kernels share their work, and what they may read, for the time of a block. A block begins after the first kernel
of a test: a stub raises there, before anything is asked of the MLX extension."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["assert_shared", "guarded", "parts_of", "race_injection", "threads"]


@contextmanager
def threads(impl: Any, count: int) -> Iterator[None]:
    """Kernels use this many threads."""
    extension = impl.native.extension
    before = extension.threads()
    extension.set_threads(count)
    try:
        yield
    finally:
        extension.set_threads(before)


def parts_of(impl: Any, run: Callable[[], object]) -> int:
    """In how many parts kernels that `run` calls hand their work to several threads."""
    before = impl.native.extension.shared_parts()
    run()
    return int(impl.native.extension.shared_parts() - before)


def assert_shared(impl: Any, run: Callable[[], object]) -> None:
    """Fail unless kernels that `run` calls hand work to several threads."""
    __tracebackhide__ = True
    if parts_of(impl, run) < 2:
        pytest.fail(
            "the work was not shared: one thread did all of it. Is `threads` called with all of the work, and with a "
            "grain that is smaller than that?"
        )


@contextmanager
def race_injection(impl: Any) -> Iterator[None]:
    """The first part of a kernel's work is stopped in its middle until all others are done."""
    extension = impl.native.extension
    extension.set_race_injection(True)
    try:
        yield
    finally:
        extension.set_race_injection(False)


@contextmanager
def guarded(impl: Any) -> Iterator[None]:
    """A kernel that reads past the end of an input raises an error, even if it makes no use of what it reads."""
    extension = impl.native.extension
    extension.guard_inputs(True)
    try:
        yield
    finally:
        extension.guard_inputs(False)
