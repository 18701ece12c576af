"""The pytest plugin of the second look (second_look.py): runs a test with a checked kernel, and writes a report.

The environment variable TINY_LLM_SECOND_LOOK holds the request as JSON. The report consists of lines of JSON. If a
fault stops a kernel, checked.cpp adds lines of its own and ends the process.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..native.checked_build import REQUEST, SECONDS, build_checked, build_set
from .observation import recording

__all__ = ["CheckedKernel"]

# each dtype's number in kernel.h, and its size in bytes
DTYPES = {"float32": (0, 4), "bfloat16": (1, 2), "float16": (2, 2), "uint32": (3, 4), "int32": (4, 4)}
UNTOUCHED = {2: 0xFFFF, 4: 0xFFFFFFFF}  # size of an element in bytes -> the element's bits before a kernel writes to it


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class CheckedKernel:
    """A kernel of a checked library, with the interface of `Kernel` in extension.py. A call runs immediately, in this
    thread.

    report: the file descriptor to which the library reports a fault that stops the kernel.
    """

    def __init__(self, library: Path, name: str, report: int, threads: int = 4):
        self._library = ctypes.CDLL(str(library))
        self._name, self._function = name, ctypes.cast(getattr(self._library, name), ctypes.c_void_p)
        self._report, self._threads = report, threads
        self.unwritten: list[tuple[int, int, int]] = []  # output, number of unwritten values, index of the first one

    def __call__(
        self, inputs: Sequence[Any], outputs: Sequence[Any], numbers: Sequence[float] = (), changed: Sequence[Any] = ()
    ) -> list[Any]:
        import mlx.core as mx

        given = [_Memory.of(x) for x in inputs]
        made = [_Memory.of(mx.contiguous(x)) for x in changed]
        made += [_Memory.empty(shape, str(dtype)) for shape, dtype in outputs]
        memories = [*given, *made]
        call = self._library.checked_run
        _tell(self._report, kernel=self._name)
        call(
            self._function,
            (_Array * len(given))(*(memory.array for memory in given)),
            len(given),
            (_Array * len(made))(*(memory.array for memory in made)),
            len(made),
            len(changed),
            (ctypes.c_int64 * len(memories))(*(memory.bytes.nbytes for memory in memories)),
            (ctypes.c_double * max(1, len(numbers)))(*map(float, numbers)),
            ctypes.c_int64(self._threads),
            SECONDS,
            self._report,
        )
        for number, memory in enumerate(made[len(changed) :], start=len(changed)):
            untouched = np.flatnonzero(memory.bytes == UNTOUCHED[memory.bytes.itemsize])
            if untouched.size:
                self.unwritten.append((number, int(untouched.size), int(untouched[0])))
        return [memory.result() for memory in made]


class _Memory:
    """A copy of an array's memory, including gaps between the elements, and the array's description for a kernel."""

    def __init__(self, memory: np.ndarray, shape: Sequence[int], strides: Sequence[int], dtype: str):
        self.bytes, self._dtype = memory, dtype.removeprefix("mlx.core.")
        self._shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self._strides = (ctypes.c_int64 * max(1, len(shape)))(*strides)
        self._of_result = tuple(shape)
        self.array = _Array(memory.ctypes.data, self._shape, self._strides, len(shape), DTYPES[self._dtype][0])

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: str) -> _Memory:
        size = DTYPES[dtype.removeprefix("mlx.core.")][1]
        count = int(np.prod(shape))
        strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
        return cls(np.full(count, UNTOUCHED[size], np.uint16 if size == 2 else np.uint32), shape, strides, dtype)

    @classmethod
    def of(cls, x: Any) -> _Memory:
        import mlx.core as mx

        mx.eval(x)
        strides = [stride // x.itemsize for stride in memoryview(x).strides or ()] if x.size else [0] * x.ndim
        if min(strides, default=0) < 0:
            return cls.of(mx.contiguous(x))
        raw = np.array(mx.contiguous(x).reshape(-1).view(mx.uint16 if x.itemsize == 2 else mx.uint32)).reshape(x.shape)
        reach = 1 + sum((n - 1) * stride for n, stride in zip(x.shape, strides, strict=True)) if x.size else 0
        memory = np.full(reach, UNTOUCHED[x.itemsize], raw.dtype)
        if x.size:
            of_memory = [x.itemsize * stride for stride in strides]
            np.lib.stride_tricks.as_strided(memory, x.shape, of_memory)[...] = raw
        return cls(memory, x.shape, strides, str(x.dtype))

    def result(self) -> Any:
        import mlx.core as mx

        return mx.array(self.bytes).view(getattr(mx, self._dtype)).reshape(self._of_result)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Run the test as many times as the second look needs, then end the process, so that pytest reports no result."""
    request = json.loads(os.environ[REQUEST])
    report = os.open(request["report"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        _look(pyfuncitem, request, report)
    finally:
        os._exit(0)
    yield  # a hook wrapper must be a generator


def _look(item: pytest.Function, request: dict[str, Any], report: int) -> None:
    source, folder = Path(request["source"]), Path(request["folder"])
    extension = import_module("tiny_llm_native.extension")
    native = Path(extension.__file__ or "").parent
    library, said = build_checked(source, native, folder)
    _tell(report, said=said)
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames if name in item.funcargs}
    kernels: list[CheckedKernel] = []

    def checked(name: str) -> CheckedKernel:
        kernels.append(CheckedKernel(library, name, report))
        return kernels[-1]

    with _loading(extension, source, checked):
        passed = _passes(item.obj, arguments)
    _tell(report, unwritten=next((found for kernel in kernels for found in kernel.unwritten), None))
    if not passed:
        mlx_extension = extension.mlx_extension()

        def passes_with(library: Path) -> bool:
            def kernel(name: str) -> Any:
                return extension.Kernel(name, library, mlx_extension)

            with _loading(extension, source, kernel):
                return _passes(item.obj, arguments)

        zero, pattern = build_set(source, native, folder)
        _tell(report, unset=passes_with(zero) and not passes_with(pattern))


@contextmanager
def _loading(extension: Any, source: Path, make: Callable[[str], Any]) -> Iterator[None]:
    """Let `make` create the kernels of one file while the block runs."""
    load = extension.load

    def instead(file: Path, name: str, *more: Any) -> Any:
        return make(name) if Path(file) == source else load(file, name, *more)

    extension.kernel.cache_clear()
    extension.load = instead
    try:
        yield
    finally:
        extension.load = load
        extension.kernel.cache_clear()


def _passes(test: Any, arguments: dict[str, Any]) -> bool:
    with recording():
        try:
            test(**arguments)
        except BaseException:
            return False
    return True


def _tell(report: int, **values: Any) -> None:
    os.write(report, json.dumps(values).encode() + b"\n")
