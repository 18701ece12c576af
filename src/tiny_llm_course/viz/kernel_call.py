"""Runs a script, and traces one of its kernel calls."""

from __future__ import annotations

import math
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias
from unittest import mock

import mlx.core as mx

from metal_host import Counts, Event, KernelCall, MetalKernelError, Trace, counting, threadgroups_of, tracing, watching

from ..ui import CommandError, Messages, phrase

__all__ = ["Call", "Sizes", "call_in"]

Sizes: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class Call:
    """A kernel call, and a trace of one of its threadgroups.

    of: the number of kernel calls that the script made. at: the position of the threadgroup in the grid. texts: the
    lines of the kernel's source, keyed by file name. spaces: "device" or "constant" for each buffer; everything else is
    in threadgroup memory. about: the buffers that describe an input, such as x_shape. error: the error that ended the
    call, or None. counts: the memory traffic and the waits of all threadgroups, or None if an error ended the call.
    """

    name: str
    number: int
    of: int
    grid: Sizes
    threadgroup: Sizes
    at: Sizes
    texts: Mapping[str, Sequence[str]]
    spaces: Mapping[str, str]
    about: frozenset[str]
    events: Trace
    error: MetalKernelError | None
    counts: Counts | None

    @property
    def threadgroups(self) -> Sizes:
        """Return the number of threadgroups along each axis."""
        return threadgroups_of(self.grid, self.threadgroup)

    @property
    def threads(self) -> int:
        """Return the number of threads in this threadgroup. A threadgroup at the grid's end may be smaller."""
        sizes = zip(self.grid, self.threadgroup, self.at, strict=True)
        return math.prod(max(0, min(size, n - at * size)) for n, size, at in sizes)

    def line(self, file: str, line: int) -> str:
        """Return a line of the source, or "" if the source is not known."""
        lines = self.texts.get(file, ())
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def elements(self, event: Event) -> range:
        """Return the indices of the elements that an event accesses in its buffer or variable."""
        return range(event.offset // event.item, (event.offset + event.size - 1) // event.item + 1)


def call_in(script: Path, number: int, at: Sizes) -> tuple[Call, CommandError | None]:
    """Run a script as `python FILE` would, and trace its kernel call with this number, counted from 1.

    Return the call and the error that ended the script. The error is None if the script succeeds. It is also None if
    the traced kernel raised it, because the call then holds that error.

    Raises:
        CommandError: the script cannot run, or makes too few kernel calls, or the kernel has no such threadgroup.
    """
    recorder = _Recorder(number, at)
    problem = recorder.run(script)
    if recorder.failed:
        raise _raised(script, recorder.failed)
    if recorder.found is None:
        raise problem or _too_few(script, number, recorder.calls)
    call = replace(recorder.found, of=recorder.calls)
    if not all(0 <= one < count for one, count in zip(at, call.threadgroups, strict=True)):
        last = ",".join(str(count - 1) for count in call.threadgroups)
        got = ",".join(map(str, at))
        raise CommandError("viz_threadgroup", last=last, name=call.name, got=got)
    return call, problem


def _too_few(script: Path, number: int, calls: int) -> CommandError:
    if calls:
        expected = phrase("viz_calls", calls=calls, script=script)
        return CommandError("wrong_value", option="--call", expected=expected, got=number)
    return CommandError("viz_no_call", script=script)


class _Recorder:
    """A recorder that counts the kernel calls of a script, and traces one of these calls."""

    def __init__(self, number: int, at: Sizes):
        self._number = number
        self._at = at
        self.calls = 0
        self.found: Call | None = None
        self.failed: Exception | None = None  # the error that kept the kernel from running

    def run(self, script: Path) -> CommandError | None:
        """Run the script, and return its error. Return None if the script succeeds, or if the error came from the
        traced kernel."""
        with watching(self._make), _as_main(script):
            try:
                runpy.run_path(str(script), run_name="__main__")
            except SystemExit as end:
                return CommandError("viz_script_ended", script=script, code=end.code, exit_code=1) if end.code else None
            except Exception as error:
                return None if self._is_kernels(error) else _raised(script, error)
        return None

    def _make(self, call: KernelCall) -> list[mx.array]:
        self.calls += 1
        if self.calls == self._number:
            self._look_at(call)
        return call.run()  # with the script's own settings, because the script itself may count or trace

    def _is_kernels(self, error: BaseException | None) -> bool:
        """Tell whether an error is the traced kernel's error, or was raised while the kernel's error was being
        handled."""
        while error and not (self.found and error is self.found.error):
            error = error.__context__
        return error is not None

    def _look_at(self, call: KernelCall) -> None:
        with tracing(self._at) as events:
            try:
                call.run(verbose=False)
            except MetalKernelError as error:
                self.found = self._call(call, events, error, None)
                raise
            except Exception as error:
                self.failed = error
                raise
        with counting() as counts:
            call.run(verbose=False)
        self.found = self._call(call, events, None, counts)

    def _call(self, call: KernelCall, events: Trace, error: MetalKernelError | None, counts: Counts | None) -> Call:
        return Call(
            call.name,
            self._number,
            self.calls,
            call.grid,
            call.threadgroup,
            self._at,
            {file: text.splitlines() for file, text in call.texts.items()},
            call.spaces,
            frozenset(parameter.name for parameter in call.signature().parameters if parameter.about),
            events,
            error,
            counts,
        )


class _ScriptError(CommandError):
    """An error that a script raised. The message keeps its line breaks."""

    def __str__(self) -> str:
        return Messages()(self.key, **self.values)


def _raised(script: Path, error: Exception) -> CommandError:
    """Turn an error that a script raised into a CommandError that names the script's line."""
    frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(script)]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(script) else None
    place = ":".join(map(str, [script, *[line or frames[-1]]] if line or frames else [script]))
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return _ScriptError("viz_script_raised", exit_code=1, place=place, error=f"{type(error).__name__}: {text}")


@contextmanager
def _as_main(script: Path) -> Iterator[None]:
    """Set `sys` as the script expects: sys.path starts with the script's folder, and sys.argv contains only the
    script."""
    path = [str(script.resolve().parent), *sys.path]
    with mock.patch.object(sys, "path", path), mock.patch.object(sys, "argv", [str(script)]):
        yield
