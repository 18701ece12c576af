"""Turns a kernel in a C++ file into an operation on MLX arrays: loads compiled code, and says what is missing.

`./course build-ext` builds the MLX extension (mlx_extension.cpp) once. A kernel's own file is compiled when you first
call the kernel, unless its library exists; compiling takes about a second. The process then keeps the compiled kernel,
as Python keeps an imported module.
"""

import ctypes
import importlib.util
import json
import os
import re
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import mlx.core as mx

from .arguments import Arguments, Output
from .compiler import BUILT, CompileError, compile_kernels
from .includes import with_included

__all__ = [
    "Kernel",
    "KernelError",
    "check_written",
    "get_ready",
    "guard_inputs",
    "is_written",
    "kernel",
    "kernel_without_fallback",
    "load",
    "mlx_extension",
    "mode",
    "set_race_injection",
    "set_threads",
    "shared_parts",
    "threads",
]

_HERE = Path(__file__).parent
_MODES = ("", "off", "watched")
_MOST_THREADS = 256
_BUILD = "./course build-ext"

_Stamp: TypeAlias = tuple[int, int]  # when a file was written, and its size


class KernelError(RuntimeError):
    """The error raised when a kernel did something forbidden, such as writing past the end of its output, or when
    kernels are needed and none can run."""


class Kernel:
    """A compiled function, as an operation on MLX arrays that is computed when its result is needed."""

    def __init__(self, name: str, library: Path, extension: ModuleType):
        self._name = name
        self._address = extension.load(str(library), name)
        self._extension = extension
        self._arguments = _arguments(extension.load(str(library), f"{name}_arguments"))
        self._is_watched = mode() == "watched"

    def __call__(
        self,
        inputs: Sequence[mx.array],
        outputs: Sequence[Output],
        numbers: Sequence[float] = (),
        changed: Sequence[mx.array] = (),
    ) -> list[mx.array]:
        """Run the function. outputs: the shape and dtype of each result. numbers: the function's number arguments.

        changed: arrays that the function writes into. The function receives these arrays, already filled, as its first
        outputs, and the first results are the changed arrays. If nothing else refers to an array when the result is
        computed, the result takes over the memory of this array; otherwise the array stays as it is, and the result is
        a changed copy.

        Raises:
            ValueError: the kernel takes more or fewer arrays or numbers. A watched kernel also raises this error if it
            takes arrays of other dtypes or with other numbers of axes.
        """
        if self._arguments is not None:
            counts = len(inputs), len(changed) + len(outputs), len(numbers)
            if self._is_watched or counts != self._arguments.counts:
                self._arguments.check(self._name, inputs, outputs, numbers, changed)
        found: list[mx.array] = self._extension.run(self._address, inputs, outputs, numbers, changed)
        if self._is_watched:
            self._look_at(found)
        return found

    def _look_at(self, results: list[mx.array]) -> None:
        try:
            mx.eval(results)
        except ValueError as error:
            if "function transformations" not in str(error):  # within mx.compile or mx.vmap, arrays have no values yet
                raise
        if violation := self._extension.take_violation():
            raise KernelError(f"{self._name} {violation}")


@cache
def kernel(source: Path, name: str, *tasks: str, flags: tuple[str, ...] = ()) -> Kernel | None:
    """Return the function `name` of a C++ file. Without an MLX extension, return None, and warn the first time.

    tasks: the tasks whose regions this function needs, in the file or in a file that it includes. flags: further
    flags for the compiler.

    If the environment variable TINY_LLM_KERNELS is `off`, the result is always None. If the variable is `watched`, as
    in the course's tests, there must be an MLX extension. Each kernel then runs at once, on copies of its arrays: a
    write out of bounds raises a KernelError, and a read out of bounds yields NaN.

    Raises:
        NotImplementedError: one of the tasks is not written yet. Nothing is compiled then.
        CompileError: the file does not compile.
        KernelError: TINY_LLM_KERNELS is `watched`, and there is no MLX extension.
    """
    for task in tasks:
        for part in with_included(source):
            check_written(part, task)
    if mode() == "off":
        return None
    if mlx_extension() is None:
        problem = f"{_why_not()}: {_BUILD}"
        if mode() == "watched":
            raise KernelError(problem)
        _warn(f"{problem} (until then MLX's own operations do the kernels' work)")
        return None
    return load(source, name, flags)


def kernel_without_fallback(source: Path, name: str, flags: tuple[str, ...] = ()) -> Kernel:
    """Return the function that `kernel` returns. Raise a KernelError if `kernel` would return None."""
    if mode() == "off" or mlx_extension() is None:
        raise KernelError(f"{_why_not()}: {_BUILD}")
    found = kernel(source, name, flags=flags)
    assert found is not None
    return found


def load(source: Path, name: str, flags: tuple[str, ...] = (), built: Path | None = None) -> Kernel:
    """Return the function `name` of a C++ file. flags: further flags for the compiler. built: the folder for the
    file's library; None means the folder `built` next to the file."""
    status = source.stat()
    library = _library(source, (status.st_mtime_ns, status.st_size), flags, built)
    if isinstance(library, CompileError):
        raise library
    module = _loaded()
    try:
        return Kernel(name, library, module)
    except RuntimeError as error:
        raise CompileError(f"{source.name} has no KERNEL({name}): {error}") from None


def _arguments(address: int) -> Arguments | None:
    """Return the arguments that a kernel takes, as the kernel's library describes them. Return None if the library has
    no description; calls are then not checked."""
    describe = ctypes.CFUNCTYPE(ctypes.c_char_p)(address)
    description: bytes = describe()
    return Arguments.parse(description.decode()) if description else None


@cache
def mlx_extension() -> ModuleType | None:
    """Return the extension that was built for this Python and this MLX. Return None if there is no such extension."""
    file = _extension_file()
    if file is None or _built_for() not in (None, _mlx_version()):
        return None
    spec = importlib.util.spec_from_file_location("_mlx_extension", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.set_threads(_thread_count())
    return module


def get_ready() -> None:
    """Load the MLX extension now, instead of when the first kernel runs."""
    mlx_extension()


def set_threads(count: int) -> None:
    """Set how many threads all later kernels use. The environment variable TINY_LLM_THREADS sets the number
    at the start."""
    _loaded().set_threads(count)


def threads() -> int:
    """Return how many threads kernels use."""
    return int(_loaded().threads())


def set_race_injection(is_on: bool) -> None:
    """For tests, set whether the first part of a kernel's work pauses midway until all other parts are done."""
    _watching().set_race_injection(is_on)


def guard_inputs(is_on: bool) -> None:
    """For tests, set whether a watched kernel that reads past the end of an input raises a KernelError, even if the
    kernel does not use the numbers read there."""
    _watching().guard_inputs(is_on)


def shared_parts() -> int:
    """Return how many pieces of work the pool has shared out among its threads so far."""
    return int(_loaded().shared())


def is_written(source: Path, task: str) -> bool:
    """Tell whether a task's region in a file contains more than the task's stub."""
    return _stub(source, task) is None


def check_written(source: Path, task: str) -> None:
    """Raise the NotImplementedError of a task's stub if the task's region in the file contains only the stub."""
    if (stub := _stub(source, task)) is not None:
        raise NotImplementedError(stub)


def _stub(source: Path, task: str) -> str | None:
    """Return the message of a task's stub. Return None if the file has no stub for this task."""
    text = source.read_text(encoding="utf-8")
    name = re.escape(task)
    region = re.search(rf"// task {name} begin *\n(.*?)^\s*// task {name} end", text, re.DOTALL | re.MULTILINE)
    lines = [line.strip() for line in region[1].splitlines()] if region else []
    if not lines or not re.match(r"// Week \d+ Day \d+ Task \d+: ", lines[0]):
        return None
    return " ".join(line.removeprefix("// ") for line in lines if line.startswith("// "))


@cache
def _library(source: Path, stamp: _Stamp, flags: tuple[str, ...], built: Path | None) -> Path | CompileError:
    """Compile a file at most once. A failure is cached, too, so that not every test of a kernel compiles the file
    again."""
    try:
        return compile_kernels(source, flags, built)
    except CompileError as error:
        return error


def _loaded() -> ModuleType:
    module = mlx_extension()
    if module is None:
        raise KernelError(f"{_why_not()}: {_BUILD}")
    return module


def _watching() -> ModuleType:
    if mode() != "watched":
        raise KernelError("this is for tests, which watch kernels: TINY_LLM_KERNELS=watched")
    return _loaded()


def _extension_file() -> Path | None:
    """Return the file of the extension that this process loads. Return None if there is no such file. Tests load their
    own build, which includes the headers in `checks`."""
    name = "_mlx_extension_watched" if mode() == "watched" else "_mlx_extension"
    files = (_HERE / BUILT / f"{name}{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((file for file in files if file.is_file()), None)


def _built_for() -> str | None:
    """Return the version of MLX for which the MLX extension was built. Return None if this version is unknown."""
    try:
        return str(json.loads((_HERE / BUILT / "mlx_extension.json").read_text(encoding="utf-8"))["mlx"])
    except (OSError, ValueError, KeyError):
        return None


def _mlx_version() -> str:
    return str(mx.__version__)  # type: ignore[attr-defined]


def _why_not() -> str:
    if mode() == "off":
        return "TINY_LLM_KERNELS is off; to build kernels"
    if _extension_file() is None:
        return "the MLX extension is not built; to build it"
    return f"the MLX extension was built for MLX {_built_for()}, and this is {_mlx_version()}; to build it again"


@cache
def _warn(text: str) -> None:
    """Warn once, at the line that called the op: in the first frame outside the op's folder."""
    frame, level = sys._getframe(1), 2
    for folder in (_HERE, None):
        folder = folder or Path(frame.f_code.co_filename).parent
        while frame.f_back is not None and Path(frame.f_code.co_filename).parent == folder:
            frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


@cache
def mode() -> str:
    """Return the value of the environment variable TINY_LLM_KERNELS: "" (not set), "off" or "watched"."""
    mode = os.environ.get("TINY_LLM_KERNELS", "")
    if mode not in _MODES:
        raise ValueError(f"TINY_LLM_KERNELS: expected off or watched, got {mode!r}")
    return mode


def _thread_count() -> int:
    """Return the number in TINY_LLM_THREADS or, without it, the number of processors that this process may use."""
    text = os.environ.get("TINY_LLM_THREADS")
    if text is None:
        count = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        return min(count, _MOST_THREADS)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST_THREADS:
        raise ValueError(f"TINY_LLM_THREADS: expected a number from 1 to {_MOST_THREADS}, got {text!r}")
    return int(text)
