"""Messages for a kernel's author, made from the runtime's report."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter

from .diagnostics import quoted
from .errors import MetalKernelError, Party
from .places import Place, calls_of
from .runner import Buffer
from .toolchain import Toolchain

__all__ = ["explain"]

_FLAGS = {0: "mem_none", 1: "mem_device", 2: "mem_threadgroup", 3: "mem_device | mem_threadgroup"}
_MESSAGES = {
    "bounds": "out of bounds: {an_access} of {element}; {memory}",
    "gap": "out of bounds: {an_access} of {element}, which is between the elements of a view",
    "array": "out of bounds: index {index} of an array of type {type}",
    "vector": "out of bounds: an element that the vector does not have",
    "wild": "{an_access} of {bytes} bytes at an address that belongs to no buffer",
    "null": "{an_access} through a null pointer",
    "unset_pointer": "{an_access} through an uninitialised pointer",
    "crash": "access to an address that belongs to no buffer",
    "alignment": "misaligned: {an_access} of {bytes} bytes at byte {byte}; {memory}",
    "misaligned": "misaligned: the pointer's type needs addresses divisible by {alignment}; the remainder is {byte}",
    "input": "write to {element}, but inputs are read-only",
    "unwritten": "read of {element}, which no thread has written; {memory}",
    "division": "division of an integer by zero",
    "endless": "a thread has run {steps} steps and has not ended",
    "time": "it has not ended after {seconds} seconds (set METAL_HOST_SECONDS to allow more)",
    "stack": "stack overflow: a thread's own variables need too much memory, or a function calls itself endlessly",
    "threadgroup_memory": "'{variable}' makes it {bytes} bytes of threadgroup memory; the limit is {limit}",
    "inactive": "{operation} reads the value of a lane that takes no part in it",
    "not_all": "{operation} needs all 32 lanes of the simdgroup, but not all of them call it",
    "memory": "its buffers do not fit into memory",
    "ended": "its process ended with status {status}",
}


class _Reader(Mapping[str, str]):
    """A report as a mapping for format strings. The items are the report's values, and texts made from these values."""

    def __init__(
        self,
        report: Mapping[str, str],
        program: Path,
        texts: Mapping[str, str],
        buffers: Sequence[Buffer],
        tools: Toolchain,
    ):
        self.report = report
        self._program = program
        self._texts = texts
        self._buffers = buffers
        self._tools = tools
        self._known: dict[str, list[Place] | None] = {}

    def __getitem__(self, key: str) -> str:
        derived: dict[str, Callable[[], str]] = {
            "element": self.element,
            "memory": self.memory,
            "an_access": lambda: _article(self["access"]),
            "type": lambda: re.sub(r".*\(aka ('.*')\)", r"\1", self.report["type"]).replace(" [", "["),
        }
        return derived[key]() if key in derived else self.report.get(key, "?")

    def __iter__(self) -> Iterator[str]:
        return iter(self.report)

    def __len__(self) -> int:
        return len(self.report)

    def has(self, key: str) -> bool:
        return key in self.report

    def place(self, prefix: str = "") -> str:
        """Quote the line of the source, indented. For a line of the header, add the body's line that led there."""
        if not (self.has(f"{prefix}line") or self.has(f"{prefix}code")):
            return ""
        line = self.line(prefix)
        if isinstance(line, str):
            return f"\n    ({line})"
        body = next(iter(self._texts))
        caller = next((place for place in self._calls(prefix) or [] if place[0] == body), None)
        text = f"\n    {quoted(*line, self._texts)}"
        return text + (f"\n    called from {quoted(*caller, self._texts)}" if caller and line[0] != body else "")

    def line(self, prefix: str) -> Place | str:
        """Return the file and the line of an access, or the reason why the line is unknown."""
        if self.has(f"{prefix}line"):
            return self[f"{prefix}file"].rsplit("/", 1)[-1], int(self[f"{prefix}line"])
        places = self._calls(prefix)
        if places is None:
            return "to see the line, install binutils"
        return next(iter(places), "no line of the kernel belongs to this code")

    def _calls(self, prefix: str) -> list[Place] | None:
        """Return the lines of the kernel that led to an access, the innermost first. Return None if no tool finds
        lines."""
        codes = self[f"{prefix}code"]
        if codes not in self._known:
            calls = calls_of(self._program, codes.split(), self._texts, self._tools)
            self._known[codes] = None if calls is None else [place for places in calls for place in places]
        return self._known[codes]

    def parties(self) -> Iterator[Party]:
        """Yield the threads that the report names."""
        for prefix in ("", "other_", "absent_"):
            if not self.has(f"{prefix}thread"):
                continue
            *_, x, y, z, number = map(int, self[f"{prefix}thread"].split())
            place = self.line(prefix)
            file, line = ("", 0) if isinstance(place, str) else place
            yield Party(number, (x, y, z), file, line)

    def thread(self, prefix: str = "") -> str:
        """Name the thread by its position, threadgroup, simdgroup and lane."""
        if not self.has(f"{prefix}thread"):
            return "?"
        x, y, z, gx, gy, gz, number = map(int, self[f"{prefix}thread"].split())
        where = f"simdgroup {number // 32}, lane {number % 32}"
        return f"thread ({x}, {y}, {z}) of the grid: number {number} of threadgroup ({gx}, {gy}, {gz}), {where}"

    def memory(self) -> str:
        """Name the buffer or variable, with its size and type."""
        if self.has("variable"):
            return f"threadgroup variable '{self['variable']}' has {_counted(self['count'])}"
        if self.has("private"):
            return f"the thread's own array '{self['private']}' has {_counted(self['count'])}"
        buffer = self._buffers[int(self["buffer"])]
        kind = ("input", "output", "output")[buffer.kind]
        return f"{kind} '{buffer.name}' has {_counted(self['count'])} of type {buffer.type}"

    def element(self) -> str:
        names = (self[key] for key in ("variable", "private") if self.has(key))
        name = next(names, None) or self._buffers[int(self["buffer"])].name
        return f"{name}[{self['index']}]"


def explain(
    name: str,
    report: Mapping[str, str],
    program: Path,
    texts: Mapping[str, str],
    buffers: Sequence[Buffer],
    tools: Toolchain,
) -> MetalKernelError:
    """Return the error that a report describes."""
    reader = _Reader(report, program, texts, buffers, tools)
    kind = reader["kind"]
    writer = {"race": _race, "divergent": _divergent, "output": _output, "unset": _unset}.get(kind, _other)
    return MetalKernelError(f"kernel '{name}': {writer(reader)}", kind, list(reader.parties()))


_PAST_END = "Or does an index run past the end of its row?"


def _race(r: _Reader) -> str:
    text = f"data race on {r.element()}: {_article(r['access'])}{r.place()}\n  by {r.thread()}\n"
    text += f"  and {_article(r['other_access'])}{r.place('other_')}\n  by "
    text += f"{r.thread('other_')}{_closeness(r)}\n"
    if r["groups"] != "1":
        rule = "Threadgroups run in no particular order, so only atomic operations may share an element."
        return f"{text}  {rule} {_PAST_END}"
    flag = "mem_threadgroup" if r.has("variable") else "mem_device"
    if r.has("barrier_flags"):
        flags = _FLAGS.get(int(r["barrier_flags"]), r["barrier_flags"])
        return text + f"  The barrier between the two has {flags}, but this memory needs {flag}:{r.place('barrier_')}"
    if r["code"].split()[0] == r["other_code"] and r["access"] == "write":
        rule = "A barrier cannot help when several threads write one element at once: let only one of them write it."
        return f"{text}  {rule}" if r.has("variable") else f"{text}  {rule} {_PAST_END}"
    return text + f"  There is no threadgroup_barrier(mem_flags::{flag}) between the two."


def _closeness(r: _Reader) -> str:
    mine, other = (r[key].split() for key in ("thread", "other_thread"))
    is_same = mine[3:6] == other[3:6] and int(mine[6]) // 32 == int(other[6]) // 32
    return " (the same simdgroup)" if is_same else ""


def _divergent(r: _Reader) -> str:
    whole = "threadgroup" if r["operation"] == "threadgroup_barrier" else "simdgroup"
    waiting = f"{r['waiting']} of {r['threads']} wait at it"
    text = f"not all threads of the {whole} reach this {r['operation']}: {waiting}"
    text += f"{r.place()}\n  such as {r.thread()}"
    if r.has("absent_thread"):
        text += f"\n  while {r['finished']} have ended, such as {r.thread('absent_')}"
    if r.has("other_thread"):
        text += f"\n  while others wait at another {r['other_operation']}{r.place('other_')}"
        text += f"\n  such as {r.thread('other_')}"
    return text


def _output(r: _Reader) -> str:
    return f"{_counted(r['missing'])} that no thread wrote: the first is {r.element()}; {r.memory()}"


def _unset(r: _Reader) -> str:
    if r.has("index"):
        problem = f"{r.element()} got the value of an uninitialised variable; {r.memory()}"
    elif r.has("operation"):
        problem = f"{r['operation']} of an uninitialised variable"
    else:
        problem = "use of an uninitialised variable"
    return f"{problem}{r.place()}\n  by {r.thread()}"


def _other(r: _Reader) -> str:
    text = Formatter().vformat(_MESSAGES.get(r["kind"], "{kind}"), (), r) + r.place()
    if r.has("index") and _is_unset(int(r["index"])):
        text += "\n  The index is an uninitialised variable."
    return f"{text}\n  by {r.thread()}" if r.has("thread") else text


def _is_unset(index: int) -> bool:
    """Tell whether an index is the pattern that fills uninitialised variables in a checked run, or is less than 65,536
    larger than this pattern."""
    return any(0 <= index % (1 << 32) - pattern < 1 << 16 for pattern in (0xFEFEFEFE, 0xAAAAAAAA))


def _article(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def _counted(number: str) -> str:
    return f"{number} element{'' if number == '1' else 's'}"
