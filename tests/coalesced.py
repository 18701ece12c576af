"""Checks, with metal_host's counts, that neighbouring lanes of a Metal kernel access neighbouring memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx
import pytest

from metal_host import Counts, counting

__all__ = ["assert_coalesced", "counted"]

LANES, LINE = 32, 64
MOST_LINES = 16  # per access of a simdgroup; if no two lanes share a line, an access touches 32 lines
FEWEST_LANES = 8  # per access of a simdgroup


@contextmanager
def counted() -> Iterator[Counts]:
    """Count the memory traffic of kernels in the block. Even in tests on a GPU, these kernels run on the CPU, because
    metal_host counts only there."""
    with pytest.MonkeyPatch.context() as patch, counting() as counts:
        patch.setenv("METAL_HOST", "check")
        yield counts


def assert_coalesced(counts: Counts, buffer: str, advice: str) -> None:
    """Fail if a simdgroup's average access to this buffer touches too many lines, or is made by too few lanes."""
    __tracebackhide__ = True
    if not counts.calls and mx.default_device().type == mx.gpu:
        return  # in grading, kernels run on the GPU, in the submission's process
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
        f"the values are right, but the {what}s of `{buffer}` are not coalesced: on average, an access of a simdgroup "
        f"{problem}.\nMemory moves whole lines, so let the lanes of a simdgroup share lines: neighbouring lanes "
        f"{what} neighbouring elements, at the same time.\n{advice}"
    )
