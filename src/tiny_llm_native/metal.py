"""From a file of Metal to a function that MLX calls: on a GPU, and without one on the CPU, by metal_host.

A body is a section `KERNEL(name) { ... }` of kernels/NAME.metal. Everything outside of all sections is its header. MLX
writes the function around a body: inputs, outputs, template arguments, shapes such as `x_shape`, and what a thread may
ask about itself, such as `thread_index_in_simdgroup`, are there without a declaration.
"""

import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import mlx.core as mx

from metal_host import MetalCompileError, MetalKernelError, metal_kernel

from .compiler import CompileError
from .extension import KernelError, check_written, is_written, mode

__all__ = ["MetalKernel", "metal", "uses_metal"]

_FEW = 8  # elements: an input that has fewer is in the constant address space
_SECTION = r"^KERNEL\((\w+)\) *\{(.*?)^\}"

_Output: TypeAlias = tuple[Sequence[int], mx.Dtype]
_Sizes: TypeAlias = tuple[int, int, int]
_Argument: TypeAlias = tuple[str, mx.Dtype | int]
_Stamp: TypeAlias = tuple[int, int]  # of a file: when it was written, and its size


class MetalKernel:
    """A section of a file of Metal, as an operation on MLX arrays.

    contiguous: whether the inputs' rows have to follow one another; other inputs are copied. If not, the body finds its
    numbers by strides such as `x_strides`, in elements.
    """

    def __init__(self, source: Path, name: str, inputs: Sequence[str], outputs: Sequence[str], contiguous: bool = True):
        header, body = _parts(source, name)
        self._place = os.path.relpath(source)
        self._name = name
        self._run: Callable[..., list[mx.array]] = metal_kernel(name, inputs, outputs, body, header, contiguous)

    def __call__(
        self,
        inputs: Sequence[mx.array | float],
        outputs: Sequence[_Output],
        grid: _Sizes,
        threadgroup: _Sizes,
        template: Sequence[_Argument] = (),
    ) -> list[mx.array]:
        """Run the section. outputs: the shape and dtype of each result. grid: how many threads run. threadgroup: how
        many threads a threadgroup has.

        template: names and values of the template arguments. For the body a number is a reference, and an array of two
        axes or more a `device` pointer; the first axis of a small one may be longer than it was, so take rows from the
        grid or hand in their number.

        Raises:
            CompileError: the file does not compile.
            KernelError: metal_host has seen the kernel do something forbidden.
        """
        try:
            return self._run(
                inputs=[_in_device_memory(x) for x in inputs],
                output_shapes=[shape for shape, _ in outputs],
                output_dtypes=[dtype for _, dtype in outputs],
                grid=grid,
                threadgroup=threadgroup,
                template=list(template),
                stream=mx.gpu,
            )
        except MetalCompileError as error:
            raise CompileError(self._told(error)) from None
        except MetalKernelError as error:
            raise KernelError(self._told(error)) from None

    def _told(self, error: Exception) -> str:
        """Return an error's message with the name of the file that was read: all lines have the numbers that they have
        there."""
        return re.sub(rf"\b{self._name}\.(header\.)?metal(?=:\d)", lambda match: self._place, str(error))


def metal(
    source: Path, name: str, inputs: Sequence[str], outputs: Sequence[str], *tasks: str, contiguous: bool = True
) -> MetalKernel:
    """Return the section `name` of a file of Metal; it is read again when the file has changed.

    inputs, outputs: what the body calls them. tasks: those whose regions in the file have to be written for this
    section.
    contiguous: as for MetalKernel.

    Raises:
        NotImplementedError: a task is still to be written.
        CompileError: the file has no such section.
    """
    return _metal(source, _stamp(source), name, tuple(inputs), tuple(outputs), tasks, contiguous)


@cache
def _metal(
    source: Path,
    stamp: _Stamp,
    name: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    tasks: tuple[str, ...],
    contiguous: bool,
) -> MetalKernel:
    for task in tasks:
        check_written(source, task)
    return MetalKernel(source, name, inputs, outputs, contiguous)


def uses_metal(source: Path, *tasks: str) -> bool:
    """Tell whether an op with several bodies takes the one in a file of Metal: there is a GPU, which is the default
    device, and all of the tasks are written.

    With TINY_LLM_KERNELS=off or watched it does not: then the CPU's body, or the fallback, is used.
    """
    if not mx.metal.is_available() or mx.default_device().type != mx.gpu or mode():
        return False
    return _all_written(source, _stamp(source), tasks)


@cache
def _all_written(source: Path, stamp: _Stamp, tasks: tuple[str, ...]) -> bool:
    return all(is_written(source, task) for task in tasks)


def _stamp(source: Path) -> _Stamp:
    status = source.stat()
    return status.st_mtime_ns, status.st_size


def _in_device_memory(x: mx.array | float) -> mx.array | float:
    """Return an array with further rows, if it has few elements, so that a body needs one kind of pointer only."""
    if not isinstance(x, mx.array) or x.ndim < 2 or x.size == 0 or x.size >= _FEW:
        return x
    return mx.pad(x, [(0, _FEW), *[(0, 0)] * (x.ndim - 1)])


def _parts(source: Path, name: str) -> tuple[str, str]:
    """Return header and body, in which all lines have the numbers that they have in the file."""
    text = source.read_text(encoding="utf-8")
    sections = {match[1]: match for match in re.finditer(_SECTION, text, re.DOTALL | re.MULTILINE)}
    if name not in sections:
        found = ", ".join(f"KERNEL({other})" for other in sections) or "none"
        expected = f"expected a section `KERNEL({name}) {{`, which a `}}` at the start of a line ends"
        raise CompileError(f"{os.path.relpath(source)}: {expected}; found {found}")
    start, end = sections[name].span(2)
    header = re.sub(_SECTION, lambda match: _blank(match[0]), text, flags=re.DOTALL | re.MULTILINE)
    body = _blank(text[:start]) + text[start:end]
    return _numbered(header, f"{name}.header.metal"), _numbered(body, f"{name}.metal")


def _blank(text: str) -> str:
    return re.sub(r"[^\n]+", "", text)


def _numbered(text: str, file: str) -> str:
    """Return a text with the file's name, for messages, in place of its first line, if that is a comment."""
    first, _, rest = text.partition("\n")
    return text if first.strip() and not first.startswith("//") else f'#line 2 "{file}"\n{rest}'
