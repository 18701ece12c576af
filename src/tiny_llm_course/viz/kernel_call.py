"""Runs a script, and looks on while one of its kernels runs."""

from __future__ import annotations

import math
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import mlx.core as mx

from metal_host import Counts, Event, MetalKernelError, counting, tracing
from metal_host import kernel as kernels
from metal_host.arrays import array_of
from metal_host.observe import observer, threadgroups_of
from metal_host.source import texts_of

from ..problems import CommandError

__all__ = ["Call", "Sizes", "call_in"]

Sizes: TypeAlias = tuple[int, int, int]
_Run: TypeAlias = Callable[..., list[mx.array]]

_MOST_EVENTS = 100_000  # that metal_host tells of a call
_ABOUT = {"shape": 4, "strides": 8, "ndim": 4}  # bytes of a number that a body gets about an input
_BYTES = {"bool": 1, "char": 1, "short": 2, "half": 2, "bfloat": 2, "int": 4, "float": 4, "long": 8}


@dataclass(frozen=True)
class Call:
    """A kernel's call, and what one of its threadgroups did.

    of: how many calls the script made. at: the position of the threadgroup among all. texts: lines of the kernel's
    source, by names of files. items: bytes of an element of each buffer and threadgroup variable. buffers: which of
    these names lie in device memory; about: of them those that are told of an input, such as x_shape. error: what ended
    it. counts: of all threadgroups, if nothing did.
    """

    name: str
    number: int
    of: int
    grid: Sizes
    threadgroup: Sizes
    at: Sizes
    texts: Mapping[str, Sequence[str]]
    items: Mapping[str, int]
    buffers: frozenset[str]
    about: frozenset[str]
    events: Sequence[Event]
    error: MetalKernelError | None
    counts: Counts | None

    @property
    def threadgroups(self) -> Sizes:
        """How many there are along each axis."""
        return threadgroups_of(self.grid, self.threadgroup)

    @property
    def threads(self) -> int:
        """Of this threadgroup; one at the grid's end may be smaller."""
        sizes = zip(self.grid, self.threadgroup, self.at, strict=True)
        return math.prod(max(0, min(size, n - at * size)) for n, size, at in sizes)

    @property
    def is_cut(self) -> bool:
        """Whether there were more events than are told."""
        return len(self.events) >= _MOST_EVENTS

    def line(self, file: str, line: int) -> str:
        """A line of the source; "" if it is not known."""
        lines = self.texts.get(file, ())
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def elements(self, event: Event) -> range:
        """Of its buffer or variable."""
        item = self.items[event.name]
        return range(event.offset // item, (event.offset + event.size - 1) // item + 1)


def call_in(script: Path, number: int, at: Sizes) -> tuple[Call, CommandError | None]:
    """Runs a script as `python FILE` would, and traces its kernel call of this number, from 1 on.

    Returns the call, and what the script failed with, unless that is what is wrong with the kernel.

    Raises:
        CommandError: the script cannot be run, or called too few kernels; the kernel has no such threadgroup.
    """
    recorder = _Recorder(number, at)
    problem = recorder.run(script)
    if recorder.failed:
        raise _ScriptError(script, recorder.failed)
    if recorder.found is None:
        raise problem or CommandError(_too_few(script, number, recorder.calls))
    call = replace(recorder.found, of=recorder.calls)
    if not all(0 <= one < count for one, count in zip(at, call.threadgroups, strict=True)):
        last = ",".join(str(count - 1) for count in call.threadgroups)
        got = ",".join(map(str, at))
        raise CommandError(f"--threadgroup: expected 0,0,0 to {last}, those of kernel {call.name}, got {got}")
    return call, problem


def _too_few(script: Path, number: int, calls: int) -> str:
    if calls:
        return f"--call: expected 1 to {calls}, the kernel calls of {script}, got {number}"
    return f"{script}: expected a script that calls a kernel made by metal_host.metal_kernel, and it called none"


class _Recorder:
    """Counts the kernel calls of a script, and looks on while the one of this number runs."""

    def __init__(self, number: int, at: Sizes):
        self._number = number
        self._at = at
        self.calls = 0
        self.found: Call | None = None
        self.failed: Exception | None = None  # what kept the kernel from running

    def run(self, script: Path) -> CommandError | None:
        """What the script failed with, if it is not the kernel that was looked at."""
        original: _Run = kernels._Kernel.__call__

        def watched(kernel: Any, **arguments: Any) -> list[mx.array]:
            self.calls += 1
            if self.calls != self._number:
                return original(kernel, **arguments)
            return self._watch(original, kernel, arguments)

        with mock.patch.object(kernels._Kernel, "__call__", watched), _as_main(script):
            try:
                runpy.run_path(str(script), run_name="__main__")
            except SystemExit as end:
                return CommandError(f"{script}: ended with {end.code}", exit_code=1) if end.code else None
            except Exception as error:
                return None if self._is_kernels(error) else _ScriptError(script, error)
        return None

    def _is_kernels(self, error: BaseException | None) -> bool:
        """Whether it is the kernel's error, or was raised where that was handled."""
        while error and not (self.found and error is self.found.error):
            error = error.__context__
        return error is not None

    def _watch(self, original: _Run, kernel: Any, arguments: Mapping[str, Any]) -> list[mx.array]:
        with tracing(self._at) as events:
            try:
                results = original(kernel, **arguments)
            except MetalKernelError as error:
                self.found = self._call(kernel, arguments, events, error, None)
                raise
            except Exception as error:
                self.failed = error
                raise
        with counting() as counts:
            original(kernel, **{**arguments, "verbose": False})
        self.found = self._call(kernel, arguments, events, None, counts)
        return original(kernel, **arguments) if observer() else results  # the script itself counts or traces

    def _call(
        self,
        kernel: Any,
        arguments: Mapping[str, Any],
        events: Sequence[Event],
        error: MetalKernelError | None,
        counts: Counts | None,
    ) -> Call:
        told = kernel._description
        inputs = [array_of(x).dtype for x in arguments["inputs"]]
        items = {name: dtype.size for name, dtype in zip(told.input_names, inputs, strict=True)}
        about = {f"{name}_{about}": size for name in told.input_names for about, size in _ABOUT.items()}
        items |= about
        items |= {name: t.size for name, t in zip(told.output_names, arguments["output_dtypes"], strict=True)}
        types = {name: value.size for name, value in arguments.get("template") or [] if isinstance(value, mx.Dtype)}
        variables = {event.name for event in events if event.kind != "wait"} - set(items)
        return Call(
            told.name,
            self._number,
            self.calls,
            arguments["grid"],
            arguments["threadgroup"],
            self._at,
            {file: text.splitlines() for file, text in texts_of(told.name, told.header, told.source).items()},
            items | {name: _item(name, told.source, types, events) for name in variables},
            frozenset(items),
            frozenset(about),
            events,
            error,
            counts,
        )


def _item(name: str, source: str, types: Mapping[str, int], events: Sequence[Event]) -> int:
    """Bytes of an element of a threadgroup variable: of its declared type, or the least that a thread moved."""
    declared = re.search(rf"\bthreadgroup\s+(?:const\s+)?(\w+)\s+[^;]*?\b{name}\b", source)
    kind = declared[1] if declared else ""
    if kind in types:
        return types[kind]
    if sized := re.fullmatch(r"(?:u?int|b?float)(8|16|32|64)_t", kind):
        return int(sized[1]) // 8
    if (plain := re.fullmatch(r"u?([a-z]+?)([234]?)", kind)) and plain[1] in _BYTES:
        return _BYTES[plain[1]] * {"": 1, "2": 2, "3": 4, "4": 4}[plain[2]]
    return min(event.size for event in events if event.name == name)


class _ScriptError(CommandError):
    """What a script raised, in as many lines as it has, behind the script's own line."""

    def __init__(self, script: Path, error: Exception):
        frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(script)]
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(script) else None
        place = ":".join(map(str, [script, *[line or frames[-1]]] if line or frames else [script]))
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        super().__init__("", 1)
        self.args = (f"{place}: {type(error).__name__}: {text}",)


@contextmanager
def _as_main(script: Path) -> Iterator[None]:
    """As a script finds it: its folder is the first to import from, and it is the only argument."""
    path = [str(script.resolve().parent), *sys.path]
    with mock.patch.object(sys, "path", path), mock.patch.object(sys, "argv", [str(script)]):
        yield
