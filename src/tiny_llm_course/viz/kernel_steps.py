"""Splits the trace of a threadgroup into steps, which end at barriers and at simdgroup operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias, TypeVar

from metal_host import Event, Party

from .kernel_call import Call

__all__ = ["LANES", "KernelStep", "Row", "Wait", "folded", "index_text", "racing", "steps_of"]

LANES = 32  # threads of a simdgroup
BARRIER = "threadgroup_barrier"

_T = TypeVar("_T")
_Key: TypeAlias = tuple[str, str, str, int, int]  # kind, name, file, line, and how many such accesses came earlier


@dataclass(frozen=True)
class Row:
    """The accesses of several threads at one place in the source, which a picture shows in one row.

    kind: "read", "write", "atomic read" or "atomic write". name: the buffer or variable. cells: the accesses of each
    thread, keyed by the thread's number.
    """

    kind: str
    name: str
    file: str
    line: int
    cells: dict[int, list[Event]]


@dataclass(frozen=True)
class Wait:
    """A barrier or a simdgroup operation, and the threads that reached it."""

    name: str
    file: str
    line: int
    threads: list[int]

    @property
    def is_barrier(self) -> bool:
        """Tell whether this is a barrier of the whole threadgroup."""
        return self.name == BARRIER


@dataclass
class KernelStep:
    """The accesses of threads until they wait, and the barriers and operations at which they wait."""

    rows: list[Row] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)


def steps_of(call: Call) -> list[KernelStep]:
    """Return the steps of the traced threadgroup.

    Each simdgroup's operations are counted from the last barrier. Operations with the same number are in one step,
    although nothing orders the operations of different simdgroups.
    """
    accesses: dict[tuple[int, int], dict[int, list[Event]]] = {}  # keyed by barriers and operations so far, then thread
    waits: dict[tuple[int, int], list[Event]] = {}
    barriers: dict[int, list[Event]] = {}
    here: dict[int, tuple[int, int]] = {}
    for event in call.events:
        era, part = here.get(event.thread, (0, 0))
        accesses.setdefault((era, part), {})
        if event.kind != "wait":
            accesses[era, part].setdefault(event.thread, []).append(event)
        elif event.name == BARRIER:
            barriers.setdefault(era, []).append(event)
            here[event.thread] = (era + 1, 0)
        else:
            waits.setdefault((era, part), []).append(event)
            here[event.thread] = (era, part + 1)
    steps = []
    for era, group in groupby(sorted(accesses), key=lambda at: at[0]):
        steps += [KernelStep(_rows(accesses[at]), _waits(waits.get(at, []))) for at in group]
        steps[-1].waits += _waits(barriers.get(era, []))
    return steps


def _rows(accesses: dict[int, list[Event]]) -> list[Row]:
    """Return the rows in an order that keeps the order of each thread's accesses. The n-th row for a place in the
    source contains each thread's n-th series of consecutive accesses at this place."""
    order: list[_Key] = []
    rows: dict[_Key, Row] = {}
    for thread, events in sorted(accesses.items()):
        seen: Counter[tuple[str, str, str, int]] = Counter()
        at = -1
        for (kind, name, file, line), group in groupby(events, key=lambda e: (e.kind, e.name, e.file, e.line)):
            key = (kind, name, file, line, seen[kind, name, file, line])
            seen[kind, name, file, line] += 1
            if key not in rows:
                order.insert(at + 1, key)
                rows[key] = Row(kind, name, file, line, {})
            at = at + 1 if order[at + 1 : at + 2] == [key] else max(at, order.index(key))
            rows[key].cells[thread] = list(group)
    return [rows[key] for key in order]


def _waits(events: Sequence[Event]) -> list[Wait]:
    places = dict.fromkeys((e.name, e.file, e.line) for e in events)
    return [Wait(*at, sorted(e.thread for e in events if (e.name, e.file, e.line) == at)) for at in places]


def racing(call: Call) -> list[Event]:
    """Return the racing accesses of this threadgroup: two, or one if the other thread is in another threadgroup."""
    if call.error is None or call.error.kind != "race":
        return []
    events: list[Event] = []
    for party in call.error.parties:
        if party.threadgroup == call.at:
            events += _access_of(party, call.events, events)
    return events


def _access_of(party: Party, events: Sequence[Event], other: Sequence[Event]) -> list[Event]:
    """Look at this thread's accesses at the line that the error names. Return a list with the last of these accesses
    that conflicts with all accesses in `other`. Return [] if there is no such access."""
    for event in reversed(events):
        is_there = not party.line or (event.file, event.line) == (party.file, party.line)
        if event.thread == party.thread and event.kind != "wait" and is_there and all(_meet(event, e) for e in other):
            return [event]
    return []


def _meet(a: Event, b: Event) -> bool:
    is_shared = a.name == b.name and a.offset < b.offset + b.size and b.offset < a.offset + a.size
    return is_shared and "write" in a.kind + b.kind


def index_text(call: Call, events: Iterable[Event]) -> str:
    """Return the indices of accessed elements as text: "3", "0–3", "0, 32", or the first and last of many: "0…96"."""
    elements = sorted({i for event in events for i in call.elements(event)})
    starts = [i for k, i in enumerate(elements) if k == 0 or elements[k - 1] != i - 1]
    ends = [i for k, i in enumerate(elements) if k + 1 == len(elements) or elements[k + 1] != i + 1]
    if len(starts) > 2:
        return f"{starts[0]}…{ends[-1]}"
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=True))


def folded(items: Sequence[_T], most: int, is_wanted: Callable[[_T], bool]) -> list[_T | list[_T]]:
    """Return up to `most` items (the first ones and the last one) and all wanted items. Each run of two
    or more omitted items becomes a list."""
    if len(items) <= most:
        return list(items)
    shown = {*range(most - 2), len(items) - 1, *(i for i, item in enumerate(items) if is_wanted(item))}
    kept: list[_T | list[_T]] = []
    for is_shown, group in groupby(enumerate(items), key=lambda entry: entry[0] in shown):
        left = [item for _, item in group]
        kept += left if is_shown or len(left) == 1 else [left]
    return kept
