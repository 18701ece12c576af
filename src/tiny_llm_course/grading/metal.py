"""Runs a submission's Metal kernels, because a submission may not start processes: `metal.py SOCKET SANDBOX MEMORY`.

These kernels are compiled to machine code, like kernels in C++ (kernel_builds.py), so they run in the sandbox and with
the limits of the submission's process.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import astuple, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from . import system_calls
from .processes import Box, limit, uncounted
from .remote import Connection, GoneError

__all__ = ["MetalRunner", "elsewhere"]

if TYPE_CHECKING:
    from metal_host import Counts

SECONDS = 90  # seconds for one kernel, including its compilation on a busy machine
FILE = 2**26  # bytes
ARGUMENTS = ("inputs", "output_shapes", "output_dtypes", "grid", "threadgroup", "template")  # of a kernel call

Answer: TypeAlias = tuple[tuple[Any, ...], str, str]  # results, error type, error text (both "" if none)
Counted: TypeAlias = tuple[tuple[int, ...], dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]  # Counts' fields


class MetalRunner:
    """The judge's side: a process that starts at the first call and runs kernels. folder: the folder for compiled
    kernels."""

    def __init__(self, folder: Path, sandbox: str, memory: int):
        self._folder = folder
        self._sandbox = sandbox
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def run(self, *request: Any) -> Answer:
        """Run a kernel call that `elsewhere` sent. If the test counts memory traffic, add the kernel's traffic to the
        test's counts."""
        from metal_host.observe import observer

        test = observer()
        counts = test.counts if test else None
        if self._connection is None or self._connection.is_broken:
            self.end()
            self._start()
        assert self._connection
        try:
            with uncounted("a kernel in Metal"):
                answer, counted = self._connection.request("run", counts is not None, *request)
            if counts is not None:
                counts.add(_counts(*counted))
            return cast(Answer, answer)
        except GoneError as error:
            self.end()
            return (), "MetalHostError", str(error)

    def _start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        environment = {"METAL_HOST": "check", "METAL_HOST_CACHE": str(self._folder)}
        environment["METAL_HOST_SECONDS"] = "2"  # seconds of processor time, far more than the tests need
        if sys.platform == "linux":
            environment["METAL_HOST_RUN"] = shlex.join([sys.executable, "-I", "-S", system_calls.__file__])
        box = Box(self._sandbox, self._folder, writes=[self._folder])
        self._process, self._connection = box.connect(__name__, [str(self._memory)], environment, SECONDS)

    def end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None


def elsewhere(connection: Connection, on_gpu: Callable[[], bool]) -> Callable[..., Callable[..., Any]]:
    """Return the submission's side: a `metal_kernel` that sends each call to the judge's side, unless a GPU runs the
    call."""
    import metal_host

    def metal_kernel(*description: Any) -> Callable[..., Any]:
        def run(**call: Any) -> list[Any]:
            if on_gpu():
                return metal_host.metal_kernel(*description)(**call)
            request = [_tuples(call[name]) for name in ARGUMENTS]
            results, kind, text = connection.request("metal", _tuples(description), *request)
            if kind == "MetalKernelError":
                raise metal_host.MetalKernelError(text, "")
            if kind:
                raise getattr(metal_host, kind, ValueError)(text)
            return list(results)

        return run

    return metal_kernel


def _run(is_counted: bool, description: Any, *request: Any) -> tuple[Answer, Counted]:
    import metal_host

    with metal_host.counting() if is_counted else nullcontext(metal_host.Counts()) as counts:
        try:
            kernel = metal_host.metal_kernel(*description)
            answer: Answer = tuple(kernel(**dict(zip(ARGUMENTS, request, strict=True)))), "", ""
        except (metal_host.MetalHostError, ValueError, TypeError) as error:
            answer = (), type(error).__name__, str(error)
    *numbers, buffers, variables = (getattr(counts, entry.name) for entry in fields(counts))
    traffic = [{name: astuple(one) for name, one in group.items()} for group in (buffers, variables)]
    return answer, (tuple(numbers), traffic[0], traffic[1])


def _counts(numbers: Any, buffers: Any, variables: Any) -> Counts:
    """Turn the plain values of the process's answer into Counts."""
    from metal_host import Counts, Traffic

    return Counts(*numbers, *({name: Traffic(*one) for name, one in group.items()} for group in (buffers, variables)))


def _tuples(value: Any) -> Any:
    """Replace lists with tuples: the connection copies every tuple, but a list only if all its elements are plain
    values."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def main() -> None:
    number, sandbox, memory = sys.argv[1:]
    for module in ("metal_host.kernel", "metal_host.observe"):
        import_module(module)  # before limits are set
    connection = Connection(socket.socket(fileno=int(number)), is_open=True)
    connection.commands = {"run": _run}
    limit(sandbox, int(memory), FILE)
    connection.serve()


if __name__ == "__main__":
    main()
