"""Turns a section of a Metal file into an operation on MLX arrays, which runs on a GPU or, if there is no GPU, in
metal_host.

A body is a section `KERNEL(name) { ... }` of kernels/NAME.metal. Everything outside the sections is the header. MLX
writes the function around a body: this function declares inputs, outputs, template arguments, shapes such as `x_shape`,
and thread attributes such as `thread_index_in_simdgroup`.
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

_FEW = 8  # elements: MLX passes an input with fewer elements in the constant address space
_SECTION = r"^KERNEL\((\w+)\) *\{(.*?)^\}"

_Output: TypeAlias = tuple[Sequence[int], mx.Dtype]
_Sizes: TypeAlias = tuple[int, int, int]
_Argument: TypeAlias = tuple[str, mx.Dtype | int]
_Stamp: TypeAlias = tuple[int, int]  # when a file was written, and its size


class MetalKernel:
    """A section of a Metal file, as an operation on MLX arrays.

    contiguous: whether inputs whose rows do not follow one another are copied first. If False, the body has to use
    strides such as `x_strides`, which count elements.
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

        template: names and values of the template arguments. In the body, a number is a reference, and an array of two
        or more axes is a `device` pointer. The first axis of a small array may be longer in the body than outside, so
        take the number of rows from the grid, or pass it as an argument.

        Raises:
            CompileError: the file does not compile.
            KernelError: metal_host detected that the kernel did something forbidden.
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
        """Return an error's message with the path of the Metal file, to which the message's line numbers refer."""
        return re.sub(rf"\b{self._name}\.(header\.)?metal(?=:\d)", lambda match: self._place, str(error))


def metal(
    source: Path, name: str, inputs: Sequence[str], outputs: Sequence[str], *tasks: str, contiguous: bool = True
) -> MetalKernel:
    """Return the section `name` of a Metal file. The file is read again when it has changed.

    inputs, outputs: the names of inputs and outputs in the body. tasks: the tasks whose regions in the file this
    section needs.
    contiguous: as in `MetalKernel`.

    Raises:
        NotImplementedError: one of the tasks is not written yet.
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
    """Tell whether an op runs its Metal kernel: the default device is a GPU, and all of the tasks are written.

    With TINY_LLM_KERNELS=off or watched, every op runs its C++ kernel or its fallback instead of its Metal kernel.
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
    """Pad an array of few elements, so that MLX passes the array in device memory. Then the body needs only one kind of
    pointer."""
    if not isinstance(x, mx.array) or x.ndim < 2 or x.size == 0 or x.size >= _FEW:
        return x
    return mx.pad(x, [(0, _FEW), *[(0, 0)] * (x.ndim - 1)])


def _parts(source: Path, name: str) -> tuple[str, str]:
    """Return the header and the body of a section. In both texts, each line has the same number as in the file."""
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
    """Replace the first line of a text, if this line is empty or a comment, with a #line directive, so that error
    messages name `file`."""
    first, _, rest = text.partition("\n")
    return text if first.strip() and not first.startswith("//") else f'#line 2 "{file}"\n{rest}'
