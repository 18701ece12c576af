"""A machine that other programs keep busy, made up: no test needs a load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tiny_llm_course.bench.quiet import Counters

__all__ = ["counters_of"]

OWN = 1.9  # processors that the measuring process keeps busy


def counters_of(others: Iterable[float], seconds: float = 1.0) -> Iterator[Counters]:
    """The counters before and after each piece of work, in which other programs use so many processors."""
    wall = used = own = 0.0
    for count in others:
        yield Counters(wall, used, own)
        wall, used, own = wall + seconds, used + (OWN + count) * seconds, own + OWN * seconds
        yield Counters(wall, used, own)
