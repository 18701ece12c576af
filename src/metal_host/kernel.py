"""`metal_kernel`: runs kernels with MLX's own function on a machine with Metal, and on the CPU elsewhere."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import mlx.core as mx
import numpy as np

from .arrays import array_of, buffer_of, filled_output
from .calls import KernelCall, unwatched, watcher
from .compiler import compile_program
from .errors import MetalHostError
from .observe import observer
from .report import explain
from .runner import INITIALISED, OUTPUT, Buffer, Options, run_program
from .signature import Signature, TypeOrNumber, write_signature
from .source import texts_of, write_program
from .toolchain import toolchain

__all__ = ["metal_kernel"]

_MODES = ("", "plain", "check", "off")
_MOST_THREADS = 1024
_MOST_SECONDS = (1 << 20) - 1


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool = False,
    compile_options: object | None = None,
) -> Callable[..., list[mx.array]]:
    """Make a kernel, like `mx.fast.metal_kernel`. On a machine without Metal, the kernel runs on the CPU.

    MLX's documentation explains the arguments. The environment variable METAL_HOST chooses where kernels run:

    - `plain`: always on the CPU.
    - `check`: always on the CPU, with a check of every memory access, barrier and operation of a simdgroup.
    - `off`: always with `mx.fast.metal_kernel`.

    On the CPU, a call computes its results before it returns, so a kernel cannot be called within mx.compile or
    mx.vmap. If an input is a view that is not copied (`ensure_row_contiguous=False`), a checked kernel may read the
    view's elements, but not the memory between the elements.

    Raises:
        MetalCompileError: the source does not compile. Calling the kernel raises this error.
        MetalKernelError: a check failed, or the kernel crashed or ran too long.
    """
    if not output_names:
        raise ValueError("[metal_kernel] Must specify at least one output.")
    description = _Description(name, list(input_names), list(output_names), source, header, atomic_outputs)
    return _Kernel(description, ensure_row_contiguous, compile_options)


@dataclass(frozen=True)
class _Description:
    name: str
    input_names: list[str]
    output_names: list[str]
    source: str
    header: str
    atomic_outputs: bool


class _Kernel:
    def __init__(self, description: _Description, ensure_row_contiguous: bool, compile_options: object | None):
        self._description = description
        self._ensure_row_contiguous = ensure_row_contiguous
        self._compile_options = compile_options

    def __call__(
        self,
        *,
        inputs: Sequence[Any],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[mx.Dtype],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Sequence[tuple[str, TypeOrNumber]] | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: Any = None,
    ) -> list[mx.array]:
        """Run the kernel. The arguments are those of a kernel made by `mx.fast.metal_kernel`."""
        if (watched_by := watcher()) is not None:
            arrays_of_call: dict[str, Any] = {
                "inputs": inputs,
                "output_shapes": output_shapes,
                "output_dtypes": output_dtypes,
            }
            rest = {"template": template, "init_value": init_value, "verbose": verbose, "stream": stream}
            return watched_by(self._as_call(grid=grid, threadgroup=threadgroup, **arrays_of_call, **rest))
        mode = _mode()
        outputs = list(zip([tuple(shape) for shape in output_shapes], output_dtypes, strict=False))
        if mode == "off" or (not mode and mx.metal.is_available()):
            return self._on_metal(inputs, outputs, grid, threadgroup, template, init_value, verbose, stream)
        self._check_counts(inputs, output_shapes, output_dtypes)
        _check_sizes(grid, threadgroup)
        arrays = [array_of(x) for x in inputs]
        signature = self._signature(arrays, output_dtypes, template or [])
        if verbose:
            text = signature.metal(self._description.header, self._description.source)
            print(f"Generated source code for `{self._description.name}`:\n```\n{text}\n```")

        def compute(*arrays: mx.array) -> list[mx.array]:
            buffers = self._buffers(signature, arrays, outputs, init_value)
            return self._run(signature, buffers, outputs, grid, threadgroup, _options(mode))

        results = _without_derivative(self._description.name, compute)(*arrays)
        mx.eval(results)  # compute now, so that other threads can read the results
        return results

    def _as_call(self, **arguments: Any) -> KernelCall:
        """Describe this call for a watcher, which decides when to run the kernel."""
        d = self._description

        def signature() -> Signature:
            arrays = [array_of(x) for x in arguments["inputs"]]
            return self._signature(arrays, arguments["output_dtypes"], arguments["template"] or [])

        texts = texts_of(d.name, d.header, d.source)
        run = partial(unwatched, self, **arguments)
        return KernelCall(d.name, arguments["grid"], arguments["threadgroup"], texts, run, signature)

    def _on_metal(self, inputs: Any, outputs: Any, grid: Any, threadgroup: Any, *rest: Any) -> list[mx.array]:
        template, init_value, verbose, stream = rest
        d = self._description
        kernel: Any = mx.fast.metal_kernel(
            d.name,
            d.input_names,
            d.output_names,
            d.source,
            d.header,
            self._ensure_row_contiguous,
            d.atomic_outputs,
            **({} if self._compile_options is None else {"compile_options": self._compile_options}),
        )
        results: list[mx.array] = kernel(
            inputs=inputs,
            output_shapes=[shape for shape, _ in outputs],
            output_dtypes=[dtype for _, dtype in outputs],
            grid=grid,
            threadgroup=threadgroup,
            template=template,
            init_value=init_value,
            verbose=verbose,
            stream=stream,
        )
        return results

    def _signature(
        self, arrays: list[mx.array], dtypes: Sequence[mx.Dtype], template: Sequence[tuple[str, TypeOrNumber]]
    ) -> Signature:
        d = self._description
        named = [(name, x.dtype, x.shape) for name, x in zip(d.input_names, arrays, strict=True)]
        outputs = list(zip(d.output_names, dtypes, strict=True))
        return write_signature(d.name, d.source, named, outputs, template, d.atomic_outputs)

    def _buffers(
        self,
        signature: Signature,
        arrays: Sequence[mx.array],
        outputs: list[tuple[tuple[int, ...], mx.Dtype]],
        init_value: float | None,
    ) -> list[Buffer]:
        buffers = []
        for p in signature.parameters:
            if p.is_output:
                data, item = filled_output(*outputs[p.index], init_value)
                kind = OUTPUT if init_value is None else INITIALISED
                buffers.append(Buffer(p.name, p.type, data, item, kind))
            else:
                buffers.append(buffer_of(p, arrays[p.index], self._ensure_row_contiguous))
        return buffers

    def _run(
        self,
        signature: Signature,
        buffers: list[Buffer],
        outputs: list[tuple[tuple[int, ...], mx.Dtype]],
        grid: Sequence[int],
        threadgroup: Sequence[int],
        options: Options,
    ) -> list[mx.array]:
        d = self._description
        program = write_program(d.name, signature, d.header, d.source)
        tools = toolchain()
        compiled = compile_program(d.name, program, options.checked, tools)
        observing = observer()
        if observing:
            options = replace(options, observe=observing.kind, traced=observing.number(grid, threadgroup))
        outcome = run_program([*tools.runner, str(compiled)], buffers, grid, threadgroup, options)
        if observing and not (outcome.report and observing.counts):
            observing.take(outcome.observed, compiled, program.texts, buffers, tools)
        if outcome.report:
            raise explain(d.name, outcome.report, compiled, program.texts, buffers, tools)
        return [_result(data, *output) for data, output in zip(outcome.results, outputs, strict=True)]

    def _check_counts(self, inputs: Sequence[Any], shapes: Sequence[Any], dtypes: Sequence[Any]) -> None:
        d = self._description
        for what, got, names in (
            ("inputs", inputs, d.input_names),
            ("output_shapes", shapes, d.output_names),
            ("output_dtypes", dtypes, d.output_names),
        ):
            if len(got) != len(names):
                expected = f"[metal_kernel] Expected `{what}` to have size {len(names)}"
                raise ValueError(f"{expected} but got size {len(got)}.")


def _without_derivative(name: str, compute: Callable[..., list[mx.array]]) -> Callable[..., list[mx.array]]:
    """Wrap `compute` so that taking its derivative raises an error.

    MLX cannot see how `compute` uses its inputs, so without this wrapper every derivative would silently be zero.
    """

    def refuse(*_: Any) -> None:
        raise MetalHostError(
            f"kernel '{name}' has no derivative: call it in an mx.custom_function, and give that function a vjp"
        )

    function: Any = mx.custom_function(compute)
    function.vjp(refuse)
    function.jvp(refuse)
    return cast(Callable[..., list[mx.array]], function)


def _check_sizes(grid: Sequence[int], threadgroup: Sequence[int]) -> None:
    for what, sizes in (("grid", grid), ("threadgroup", threadgroup)):
        if len(sizes) != 3 or not all(isinstance(n, int) and 0 <= n < 1 << 31 for n in sizes):
            raise TypeError(f"[metal_kernel] {what}: expected three sizes, got {sizes}")
    size = threadgroup[0] * threadgroup[1] * threadgroup[2]
    if size > _MOST_THREADS:
        limit = f"the maximum allowed threads per threadgroup ({_MOST_THREADS})"
        raise ValueError(f"Thread group size ({size}) is greater than {limit}.")


def _result(data: bytes, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    raw = mx.array(np.frombuffer(data, np.uint8))
    return (raw.view(dtype) if data and dtype != mx.bool_ else raw.astype(dtype)).reshape(shape)


def _mode() -> str:
    mode = os.environ.get("METAL_HOST", "")
    if mode not in _MODES:
        raise ValueError(f"METAL_HOST: expected plain, check or off, got {mode!r}")
    if observer() and mode == "off":
        raise MetalHostError("METAL_HOST=off: only kernels that run on the CPU can be counted or traced")
    return "check" if observer() else mode


def _options(mode: str) -> Options:
    """Read the options from the environment. METAL_HOST_ORDER is forward, backward, or the seed of a random order."""
    options = Options(mode == "check", seconds=_number("METAL_HOST_SECONDS", Options.seconds))
    order = os.environ.get("METAL_HOST_ORDER", "forward")
    if order in ("forward", "backward"):
        return replace(options, order=int(order == "backward"))
    if not order.isdigit():
        raise ValueError(f"METAL_HOST_ORDER: expected forward, backward or a number, got {order!r}")
    return replace(options, order=2, seed=int(order) % (1 << 32))


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdigit() or not 0 < int(text) <= _MOST_SECONDS:
        raise ValueError(f"{name}: expected a whole number from 1 to {_MOST_SECONDS}, got {text!r}")
    return int(text)
