"""Runs of compiled kernels, each in a process of its own, so that a crash or an endless loop cannot harm the caller.

The caller and the kernel's process both map the request into memory. The request is an unnamed file that holds all
buffers. The kernel's process prints its answer.
"""

import mmap
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .errors import MetalHostError

__all__ = ["INITIALISED", "INPUT", "OUTPUT", "Buffer", "Options", "Outcome", "run_program"]

INPUT, OUTPUT, INITIALISED = range(3)  # kinds of buffers; an initialised output has values before the kernel runs
_HEADER = struct.Struct("=10IQ4I")
_BUFFER = struct.Struct("=4Q3I4x")
_NUMBERS = {"float": 1, "float16_t": 2, "bfloat16_t": 3} | dict.fromkeys(
    ("int32_t", "uint32_t", "int64_t", "uint64_t"), 4
)
_PAGE = 1 << 14
_SLACK = 20  # wall-clock seconds allowed per second of processor time, because the machine may be busy


@dataclass(frozen=True)
class Buffer:
    """A buffer of a kernel.

    origin: the index of the byte to which the kernel's pointer points.
    gaps: for an input that is a view, one flag per byte, 1 for the bytes between elements.
    copied: how many bytes were copied because the input was not row-contiguous.
    """

    name: str
    type: str
    data: "np.ndarray[Any, np.dtype[np.uint8]]"
    item: int
    kind: int = INPUT
    origin: int = 0
    gaps: "np.ndarray[Any, np.dtype[np.uint8]] | None" = None
    copied: int = 0

    @property
    def number(self) -> int:
        """Return the number that the runtime (`msl_number`) uses for the type of the elements."""
        return _NUMBERS.get(self.type.removeprefix("atomic<").removesuffix(">"), 0)


@dataclass(frozen=True)
class Options:
    """The options of a run.

    order: the order of threads and threadgroups: 0 forward, 1 backward, 2 random with `seed`.
    steps: how many basic blocks one thread may run, in a checked run.
    seconds: how many seconds of processor time a run may take.
    observe: 0 nothing, 1 counts, 2 the events of threadgroup number `traced`.
    """

    checked: bool
    order: int = 0
    seed: int = 0
    steps: int = 50_000_000
    seconds: int = 30
    threadgroup_bytes: int = 32768
    observe: int = 0
    traced: int = 0


class Outcome(NamedTuple):
    """The outcome of a run.

    report: the description of a problem; empty if there was none.
    observed: the lines that observe.py reads.
    results: the bytes of each output.
    """

    report: dict[str, str]
    observed: list[str]
    results: list[bytes]


def run_program(
    command: Sequence[str], buffers: Sequence[Buffer], grid: Sequence[int], threadgroup: Sequence[int], options: Options
) -> Outcome:
    """Run a kernel for a whole grid.

    command: the compiled program. If the program is for another machine, an emulator such as qemu comes first.
    """
    offsets, size = _places(buffers)
    with tempfile.TemporaryFile(prefix="metal_host-") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as memory:
            _write_request(memory, buffers, offsets, grid, threadgroup, options)
            report, observed = _run(command, file.fileno(), options.seconds)
            places = zip(buffers, offsets, strict=True)
            return Outcome(report, observed, [memory[at : at + b.data.size] for b, at in places if b.kind != INPUT])


def _places(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    size = _aligned(_HEADER.size + _BUFFER.size * len(buffers))
    offsets = []
    for buffer in buffers:
        offsets.append(size)
        size += _aligned(buffer.data.size) * (1 if buffer.gaps is None else 2)
    return offsets, size


def _aligned(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _write_request(
    memory: mmap.mmap,
    buffers: Sequence[Buffer],
    offsets: Sequence[int],
    grid: Sequence[int],
    threadgroup: Sequence[int],
    options: Options,
) -> None:
    numbers = (int(options.checked), len(buffers), *grid, *threadgroup, options.order, options.seed)
    limits = (options.steps, options.seconds, options.threadgroup_bytes, options.observe, options.traced)
    memory[: _HEADER.size] = _HEADER.pack(*numbers, *limits)
    for i, (buffer, offset) in enumerate(zip(buffers, offsets, strict=True)):
        at = _HEADER.size + i * _BUFFER.size
        gaps = 0 if buffer.gaps is None else offset + _aligned(buffer.data.size)
        entry = _BUFFER.pack(offset, buffer.data.size, buffer.origin, gaps, buffer.item, buffer.kind, buffer.number)
        memory[at : at + _BUFFER.size] = entry
        if buffer.kind != OUTPUT:
            memory[offset : offset + buffer.data.size] = buffer.data.tobytes()
        if buffer.gaps is not None:
            memory[gaps : gaps + buffer.data.size] = buffer.gaps.tobytes()


def _run(command: Sequence[str], request: int, seconds: int) -> tuple[dict[str, str], list[str]]:
    try:
        run = subprocess.run(
            command, stdin=request, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds * _SLACK
        )
    except subprocess.TimeoutExpired:
        return {"kind": "time", "seconds": str(seconds * _SLACK)}, []
    except OSError as error:
        raise MetalHostError(f"a compiled kernel cannot be started: {error}") from None
    lines = run.stdout.decode(errors="replace").splitlines()
    report = {key: value for key, _, value in (line.partition(" ") for line in lines) if key != "=" and value}
    if run.returncode and not report:
        report = {"kind": "ended", "status": str(run.returncode)}
    return report, [line[2:] for line in lines if line.startswith("= ")]
