"""Fails a kernel in Metal whose neighbouring lanes do not load neighbouring numbers: by what metal_host counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx
import pytest

from metal_host import Counts, counting

__all__ = ["assert_coalesced", "counted"]

LANES, LINE = 32, 64
MOST_LINES = 16  # for an access of a simdgroup: half of the lanes have one of their own
FEWEST_LANES = 8  # that take part in one


@contextmanager
def counted() -> Iterator[Counts]:
    """What kernels move within. They run on the CPU, wherever the tests do: a GPU does not count."""
    with pytest.MonkeyPatch.context() as patch, counting() as counts:
        patch.setenv("METAL_HOST", "check")
        yield counts


def assert_coalesced(counts: Counts, buffer: str, advice: str) -> None:
    """Fail if an access of a simdgroup to this buffer touches many lines, or if few lanes take part in it."""
    __tracebackhide__ = True
    if not counts.calls and mx.default_device().type == mx.gpu:
        return  # a submission that is graded: its kernels run on the GPU, in its own process
    seen = counts.buffers[buffer]
    what = "read" if seen.reads else "write"
    lines, lanes = seen.lines / seen.together, (seen.reads + seen.writes) / seen.together
    size = (seen.read + seen.written) / seen.together
    if lines > MOST_LINES:
        problem = f"touches {lines:.3g} lines of {LINE} bytes, for {size:.3g} bytes that it {what}s"
        problem += f"; expected: no more than {MOST_LINES} lines"
    elif lanes < FEWEST_LANES:
        problem = f"is made by {lanes:.3g} of {LANES} lanes; expected: {FEWEST_LANES} or more"
    else:
        return
    pytest.fail(
        f"the numbers are right, but the {what}s of `{buffer}` are not coalesced: on average, one of a simdgroup "
        f"{problem}.\nMemory moves whole lines. Accesses are coalesced where the lanes of a simdgroup share lines: "
        f"neighbouring lanes {what} neighbouring places, at the same time.\n{advice}"
    )
