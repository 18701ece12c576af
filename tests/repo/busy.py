"""A simulated machine that other programs keep busy, so that no test needs real load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tiny_llm_course.bench.quiet import Counters

__all__ = ["counters_of"]

OWN = 1.9  # processors that the measuring process keeps busy


def counters_of(others: Iterable[float], seconds: float = 1.0) -> Iterator[Counters]:
    """Yield the counters before and after each piece of work. others: how many processors other programs use in
    each."""
    wall = used = own = 0.0
    for count in others:
        yield Counters(wall, used, own)
        wall, used, own = wall + seconds, used + (OWN + count) * seconds, own + OWN * seconds
        yield Counters(wall, used, own)
