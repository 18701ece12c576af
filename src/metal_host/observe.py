"""Looks on while a kernel runs: how much memory it moves, and in which pieces; or what each thread does, in order."""

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

NOTHING, COUNTS, TRACE = range(3)  # what the runtime is asked to observe
_ACCESSES = {"r": "read", "w": "write", "ar": "atomic read", "aw": "atomic write"}


@dataclass
class Traffic:
    """The traffic of one buffer or threadgroup variable.

    read, written: bytes, each time that a thread moved them. distinct_read, distinct_written: each byte once a call.
    reads, writes: accesses of threads; wide: those of them that move 16 bytes or more.
    together: accesses of simdgroups: what its lanes do at the same place in the text, for the same time, is one.
    lines: into how many lines of 64 bytes those fall, for a buffer; as few as possible is coalesced.
    cycles: what those take, for a threadgroup variable, if its memory has 32 banks of 4 bytes, each of which gives one
    word at a time; conflicts: how many fewer would do if the words of an access lay in as many banks as there are.
    copied: bytes of an input that were copied before, since its rows had to follow one another and did not.
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
        """Add all of them, in their order."""
        for entry, number in zip(fields(self), numbers, strict=True):
            setattr(self, entry.name, getattr(self, entry.name) + number)


@dataclass
class Counts:
    """The counts of what kernels did, all calls together.

    buffers: by the names of inputs and outputs; variables: threadgroup variables, by theirs.
    barriers: of threadgroups, each counted once for a threadgroup; those of simdgroups and their operations, for each
    lane.
    """

    calls: int = 0
    threadgroups: int = 0
    barriers: int = 0
    simd_barriers: int = 0
    simd_operations: int = 0
    buffers: dict[str, Traffic] = field(default_factory=dict)
    variables: dict[str, Traffic] = field(default_factory=dict)

    def add(self, other: "Counts") -> None:
        """Add other counts, such as those of another process."""
        for name in ("calls", "threadgroups", "barriers", "simd_barriers", "simd_operations"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for group, added in ((self.buffers, other.buffers), (self.variables, other.variables)):
            for key, traffic in added.items():
                group.setdefault(key, Traffic()).add(astuple(traffic))


@dataclass(frozen=True)
class Event:
    """An event: what one thread of the traced threadgroup did.

    thread: its number in the threadgroup. kind: "read", "write", "atomic read", "atomic write" or "wait".
    name: of the buffer or threadgroup variable; of the barrier or operation of a simdgroup that it waits at.
    offset, size: in bytes, from where the kernel's pointer points. item: bytes of an element there; a vector is one.
    file, line: of the kernel's text; "" and 0 if it is not known.
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
    """Events in the order in which they happened here. is_cut: whether there were more than are kept."""

    is_cut = False


@dataclass
class Observer:
    """An observer of calls, and what it asked for. threadgroup: which one is traced."""

    counts: Counts | None = None
    events: Trace | None = None
    threadgroup: tuple[int, int, int] = (0, 0, 0)

    @property
    def kind(self) -> int:
        return COUNTS if self.counts is not None else TRACE

    def number(self, grid: Sequence[int], threadgroup: Sequence[int]) -> int:
        """The traced threadgroup's, counted as the runtime does."""
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
        """Adds what one run told."""
        told = [line.split() for line in lines]
        variables = [words[2:] for words in told if words[0] == "variable"]
        names = [b.name for b in buffers] + [name for _, name in variables]
        if self.counts is not None:
            _add_counts(self.counts, told, names, [b.copied for b in buffers])
        if self.events is not None:
            items = [b.item for b in buffers] + [int(item) for item, _ in variables]
            origins = [b.origin for b in buffers] + [0] * len(variables)
            codes = sorted({words[6] for words in told if words[0] == "access"})
            places = dict(zip(codes, lines_of(program, codes, texts, tools) or [], strict=False))
            self.events.is_cut |= ["more"] in told
            self.events += _events(told, list(zip(names, items, origins, strict=True)), places)


def _events(
    told: Sequence[Sequence[str]], regions: Sequence[tuple[str, int, int]], places: Mapping[str, Place | None]
) -> Iterator[Event]:
    """regions: name, bytes of an element, and origin of each buffer and variable."""
    for kind, *words in told:
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
    """Return the observer that looks on now, in this thread."""
    return _observer.get()


@contextmanager
def counting() -> Iterator[Counts]:
    """Counts what all kernels do that this thread calls within; they run on the CPU, and checked.

    `with counting() as counts: ...; counts.buffers["x"].read`. It is a model of a GPU: what its caches do, how it joins
    accesses, and what its banks are, differs between GPUs; and what a compiler knows already it does not read again. A
    kernel that is complained of is not counted.
    """
    counts = Counts()
    token = _observer.set(Observer(counts=counts))
    try:
        yield counts
    finally:
        _observer.reset(token)


@contextmanager
def tracing(threadgroup: tuple[int, int, int] = (0, 0, 0)) -> Iterator[Trace]:
    """Notes what the threads of one threadgroup do, in all kernels that this thread calls within, as `counting` does.

    The events are in the order in which they happened here: a thread runs until it waits, so that threads do not take
    turns as on a GPU. Of a kernel that is complained of, they end where that was. No more than 100,000 are kept a call.
    """
    events = Trace()
    token = _observer.set(Observer(events=events, threadgroup=threadgroup))
    try:
        yield events
    finally:
        _observer.reset(token)


def _add_counts(counts: Counts, told: Sequence[Sequence[str]], names: Sequence[str], copied: Sequence[int]) -> None:
    counts.calls += 1
    for kind, *rest in told:
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
