"""Observation of running kernels: counts of the bytes and accesses of each buffer and variable, or a record of every
access."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

from .places import Place, lines_of
from .runner import Buffer
from .toolchain import Toolchain

__all__ = [
    "NOTHING",
    "Counts",
    "Event",
    "Observer",
    "Trace",
    "Traffic",
    "counting",
    "observer",
    "threadgroups_of",
    "tracing",
]

NOTHING, COUNTS, TRACE = range(3)  # kinds of observation that the runtime knows
_ACCESSES = {"r": "read", "w": "write", "ar": "atomic read", "aw": "atomic write"}


@dataclass
class Traffic:
    """The traffic of one buffer or threadgroup variable.

    read, written: bytes; a byte counts each time that a thread reads or writes it.
    distinct_read, distinct_written: bytes; a byte counts once per call of the kernel.
    reads, writes: accesses of single threads. wide: how many of these accesses move 16 bytes or more.
    together: accesses of simdgroups. The n-th accesses of a simdgroup's lanes at the same place in the code count as
    one access.
    lines: how many lines of 64 bytes the simdgroups' accesses to a buffer touch. Coalesced accesses touch the fewest
    lines.
    cycles: how many cycles the simdgroups' accesses to a threadgroup variable take, in a memory of 32 banks that each
        deliver one word of 4 bytes per cycle.
    conflicts: how many of these cycles would be saved if every access were spread evenly over the banks.
    copied: bytes of an input that were copied before the call, because the input was not row-contiguous.
    """

    read: int = 0
    written: int = 0
    reads: int = 0
    writes: int = 0
    wide: int = 0
    distinct_read: int = 0
    distinct_written: int = 0
    together: int = 0
    lines: int = 0
    cycles: int = 0
    conflicts: int = 0
    copied: int = 0

    def add(self, numbers: Sequence[int]) -> None:
        """Add one number to each field, in the order of the fields."""
        for entry, number in zip(fields(self), numbers, strict=True):
            setattr(self, entry.name, getattr(self, entry.name) + number)


@dataclass
class Counts:
    """The counts of all observed calls of kernels.

    buffers: the traffic of inputs and outputs, keyed by name.
    variables: the traffic of threadgroup variables, keyed by name.
    barriers: threadgroup barriers, each counted once per threadgroup that reaches it.
    simd_barriers, simd_operations: barriers and operations of simdgroups, each counted once per lane.
    """

    calls: int = 0
    threadgroups: int = 0
    barriers: int = 0
    simd_barriers: int = 0
    simd_operations: int = 0
    buffers: dict[str, Traffic] = field(default_factory=dict)
    variables: dict[str, Traffic] = field(default_factory=dict)

    def add(self, other: "Counts") -> None:
        """Add other counts to these counts, such as the counts of another process."""
        for name in ("calls", "threadgroups", "barriers", "simd_barriers", "simd_operations"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for group, added in ((self.buffers, other.buffers), (self.variables, other.variables)):
            for key, traffic in added.items():
                group.setdefault(key, Traffic()).add(astuple(traffic))


@dataclass(frozen=True)
class Event:
    """An access or a wait of one thread in the traced threadgroup.

    thread: the thread's number in the threadgroup.
    kind: "read", "write", "atomic read", "atomic write" or "wait".
    name: the buffer or threadgroup variable; for a wait, the barrier or the operation of a simdgroup.
    offset, size: in bytes; the offset is counted from the address that is passed to the kernel.
    item: the size in bytes of an element of that memory; an element of a float4 array has 16 bytes.
    file, line: a place in the kernel's text; "" and 0 if the place is unknown.
    """

    thread: int
    kind: str
    name: str
    offset: int
    size: int
    item: int
    file: str
    line: int


class Trace(list[Event]):
    """Events, in the order in which they occurred in this run. is_cut: whether later events were dropped."""

    is_cut = False


@dataclass
class Observer:
    """An observer that collects counts, or the events of one threadgroup."""

    counts: Counts | None = None
    events: Trace | None = None
    threadgroup: tuple[int, int, int] = (0, 0, 0)

    @property
    def kind(self) -> int:
        return COUNTS if self.counts is not None else TRACE

    def number(self, grid: Sequence[int], threadgroup: Sequence[int]) -> int:
        """Return the number of the traced threadgroup, in the runtime's order."""
        number = 0
        for count, at in zip(reversed(threadgroups_of(grid, threadgroup)), reversed(self.threadgroup), strict=True):
            number = number * count + at
        return number

    def take(
        self,
        lines: Sequence[str],
        program: Path,
        texts: Mapping[str, str],
        buffers: Sequence[Buffer],
        tools: Toolchain,
    ) -> None:
        """Add the observations of one run."""
        entries = [line.split() for line in lines]
        variables = [words[2:] for words in entries if words[0] == "variable"]
        names = [b.name for b in buffers] + [name for _, name in variables]
        if self.counts is not None:
            _add_counts(self.counts, entries, names, [b.copied for b in buffers])
        if self.events is not None:
            items = [b.item for b in buffers] + [int(item) for item, _ in variables]
            origins = [b.origin for b in buffers] + [0] * len(variables)
            codes = sorted({words[6] for words in entries if words[0] == "access"})
            places = dict(zip(codes, lines_of(program, codes, texts, tools) or [], strict=False))
            self.events.is_cut |= ["more"] in entries
            self.events += _events(entries, list(zip(names, items, origins, strict=True)), places)


def _events(
    entries: Sequence[Sequence[str]], regions: Sequence[tuple[str, int, int]], places: Mapping[str, Place | None]
) -> Iterator[Event]:
    """Yield the events. regions: the name, the bytes per element, and the origin of each buffer and variable."""
    for kind, *words in entries:
        if kind == "access":
            thread, access, region, at, size, code = words
            name, item, origin = regions[int(region)]
            file, line = places.get(code) or ("", 0)
            yield Event(int(thread), _ACCESSES[access], name, int(at) - origin, int(size), item, file, line)
        elif kind == "wait":
            thread, operation, at, in_file = words
            yield Event(int(thread), "wait", operation, 0, 0, 1, in_file, int(at))


def threadgroups_of(grid: Sequence[int], threadgroup: Sequence[int]) -> tuple[int, int, int]:
    """Return the number of threadgroups along each axis."""
    x, y, z = (-(-size // max(1, min(size, of_one))) for size, of_one in zip(grid, threadgroup, strict=True))
    return x, y, z


_observer: ContextVar[Observer | None] = ContextVar("metal_host_observer", default=None)


def observer() -> Observer | None:
    """Return the observer of this thread's calls. Return None if there is no observer."""
    return _observer.get()


@contextmanager
def counting() -> Iterator[Counts]:
    """Count the memory traffic and barriers of every kernel that this thread calls in the block.

    The kernels run on the CPU, with checks. Example: `with counting() as counts: ...; counts.buffers["x"].read`. The
    counts describe a model of a GPU, because caches, coalescing and banks differ between GPUs. A value that the
    compiler keeps in a register is read, and counted, only once. A call that ends in an error is not counted.
    """
    counts = Counts()
    token = _observer.set(Observer(counts=counts))
    try:
        yield counts
    finally:
        _observer.reset(token)


@contextmanager
def tracing(threadgroup: tuple[int, int, int] = (0, 0, 0)) -> Iterator[Trace]:
    """Record every access and wait of one threadgroup, in each kernel that this thread calls in the block.

    The kernels run as in `counting`. A thread runs until it waits, so the order of events differs from that on a GPU,
    where threads run at the same time. If a call ends in an error, its events end there. Each call keeps at most
    100,000 events.
    """
    events = Trace()
    token = _observer.set(Observer(events=events, threadgroup=threadgroup))
    try:
        yield events
    finally:
        _observer.reset(token)


def _add_counts(counts: Counts, entries: Sequence[Sequence[str]], names: Sequence[str], copied: Sequence[int]) -> None:
    counts.calls += 1
    for kind, *rest in entries:
        if kind == "run":
            counts.threadgroups += int(rest[0])
            counts.barriers += int(rest[1])
            counts.simd_barriers += int(rest[2])
            counts.simd_operations += int(rest[3])
        elif kind == "count":
            number = int(rest[0])
            is_buffer = number < len(copied)
            traffic = (counts.buffers if is_buffer else counts.variables).setdefault(names[number], Traffic())
            traffic.add([*(int(n) for n in rest[1:]), copied[number] if is_buffer else 0])
