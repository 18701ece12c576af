"""Contexts that change how kernels share their work and what they may read.

Begin a block after the first kernel of a test: that kernel raises a stub's error before the MLX extension is used.
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
    """Return into how many parts the kernels that `run` calls divide their work among several threads."""
    before = impl.native.extension.shared_parts()
    run()
    return int(impl.native.extension.shared_parts() - before)


def assert_shared(impl: Any, run: Callable[[], object]) -> None:
    """Fail unless kernels that `run` calls share their work among several threads."""
    __tracebackhide__ = True
    if parts_of(impl, run) < 2:
        pytest.fail(
            "the work was not shared: one thread did all of it. Is `threads` called with all of the work, and with a "
            "grain that is smaller than that?"
        )


@contextmanager
def race_injection(impl: Any) -> Iterator[None]:
    """Stop the first part of each kernel's work in the middle, until all other parts are done."""
    extension = impl.native.extension
    extension.set_race_injection(True)
    try:
        yield
    finally:
        extension.set_race_injection(False)


@contextmanager
def guarded(impl: Any) -> Iterator[None]:
    """Raise an error in a kernel that reads past the end of an input, even if it does not use the value."""
    extension = impl.native.extension
    extension.guard_inputs(True)
    try:
        yield
    finally:
        extension.guard_inputs(False)
