"""The function that MLX writes around a kernel's body."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

__all__ = ["ATTRIBUTES", "Parameter", "Signature", "TypeOrNumber", "metal_type", "write_signature"]

TypeOrNumber = mx.Dtype | int | bool

_FEW = 8  # MLX puts an input with fewer elements than this into the constant address space
_TYPES = {
    "bool": "bool",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "float16": "float16_t",
    "float32": "float",
    "bfloat16": "bfloat16_t",
    "complex64": "complex64_t",
}
_ABOUT = {"shape": "int*", "strides": "int64_t*", "ndim": "int&"}  # a body that names x_shape receives x's shape

# The attributes of a thread, in MLX's order: the type, and the C++ expression for the value in `msl_thread`.
ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": ("uint", "t->dispatch_simdgroups * 8"),
    "dispatch_simdgroups_per_threadgroup": ("uint", "t->dispatch_simdgroups"),
    "dispatch_threads_per_threadgroup": ("uint3", "t->dispatch_threads"),
    "grid_origin": ("uint3", ""),
    "grid_size": ("uint3", "t->threads_per_grid"),
    "quadgroup_index_in_threadgroup": ("uint", "t->index / 4"),
    "quadgroups_per_threadgroup": ("uint", "t->simdgroups * 8"),
    "simdgroup_index_in_threadgroup": ("uint", "t->simdgroup"),
    "simdgroups_per_threadgroup": ("uint", "t->simdgroups"),
    "thread_execution_width": ("uint", "32"),
    "thread_index_in_quadgroup": ("uint", "t->index % 4"),
    "thread_index_in_simdgroup": ("uint", "t->lane"),
    "thread_index_in_threadgroup": ("uint", "t->index"),
    "thread_position_in_grid": ("uint3", "t->position_in_grid"),
    "thread_position_in_threadgroup": ("uint3", "t->position_in_threadgroup"),
    "threadgroup_position_in_grid": ("uint3", "t->threadgroup_position"),
    "threadgroups_per_grid": ("uint3", "t->threadgroups"),
    "threads_per_grid": ("uint3", "t->threads_per_grid"),
    "threads_per_simdgroup": ("uint", "32"),
    "threads_per_threadgroup": ("uint3", "t->threads_per_threadgroup"),
}


@dataclass(frozen=True)
class Parameter:
    """A buffer argument of a kernel: an input, a fact `about` an input (its shape, strides or ndim), or an output."""

    name: str
    type: str
    space: str
    is_reference: bool = False
    index: int = 0  # the index of the input or output
    about: str = ""
    is_output: bool = False

    @property
    def declaration(self) -> str:
        const = "" if self.is_output else "const "
        return f"{const}{self.space} {self.type}{'&' if self.is_reference else '*'} {self.name}"


@dataclass(frozen=True)
class Signature:
    """A kernel's function without its body."""

    kernel: str
    template: tuple[tuple[str, str, str], ...]  # kind (typename, int or bool), name, value
    parameters: tuple[Parameter, ...]
    attributes: tuple[str, ...]

    @property
    def template_line(self) -> str:
        return f"template <{', '.join(f'{kind} {name}' for kind, name, _ in self.template)}>\n" if self.template else ""

    @property
    def template_values(self) -> str:
        return f"<{', '.join(value for _, _, value in self.template)}>" if self.template else ""

    def metal(self, header: str, source: str) -> str:
        """Write the whole text that MLX gives to Metal's compiler, and that `verbose=True` prints."""
        lines = [f"{p.declaration} [[buffer({i})]]" for i, p in enumerate(self.parameters)]
        lines += [f"{ATTRIBUTES[a][0]} {a} [[{a}]]" for a in self.attributes]
        function = f"{self.template_line}[[kernel]] void {self.kernel}(\n  " + ",\n  ".join(lines) + ") {"
        text = f"{header}{function}\n{source}\n}}\n"
        if self.template:
            one = f"{self.kernel}{self.template_values}"
            text += f'\ntemplate [[host_name("{self.kernel}")]] [[kernel]] decltype({one}) {one};\n'
        return text


def metal_type(dtype: mx.Dtype) -> str:
    """Return the name of a dtype in Metal."""
    return _TYPES[str(dtype).removeprefix("mlx.core.")]


def write_signature(
    name: str,
    source: str,
    inputs: Sequence[tuple[str, mx.Dtype, Sequence[int]]],
    outputs: Sequence[tuple[str, mx.Dtype]],
    template: Sequence[tuple[str, TypeOrNumber]],
    atomic_outputs: bool,
) -> Signature:
    """Return the signature that MLX writes for a call. inputs, outputs: the name and the dtype of each array, and the
    shape of each input."""
    values = tuple(_template_value(*item) for item in template)
    parameters: list[Parameter] = []
    for index, (parameter, dtype, shape) in enumerate(inputs):
        parameters += _input_parameters(parameter, dtype, shape, index, source)
    for index, (parameter, dtype) in enumerate(outputs):
        kind = f"atomic<{metal_type(dtype)}>" if atomic_outputs else metal_type(dtype)
        parameters.append(Parameter(parameter, kind, "device", index=index, is_output=True))
    kernel = f"custom_kernel_{name}_" + "".join(f"_{value}".replace("-", "_") for _, _, value in values)
    kernel += "".join(f"_{metal_type(dtype)}{_suffix(shape)}" for _, dtype, shape in inputs).removeprefix(
        "" if values else "_"
    )
    kernel += "".join(f"_{metal_type(dtype)}" for _, dtype in outputs).removeprefix("" if values or inputs else "_")
    return Signature(kernel, values, tuple(parameters), tuple(a for a in ATTRIBUTES if a in source))


def _input_parameters(name: str, dtype: mx.Dtype, shape: Sequence[int], index: int, source: str) -> list[Parameter]:
    space = "constant" if _size(shape) < _FEW else "device"
    parameters = [Parameter(name, metal_type(dtype), space, not shape, index)]
    for about, kind in _ABOUT.items():
        if shape and f"{name}_{about}" in source:
            parameters.append(Parameter(f"{name}_{about}", kind[:-1], "constant", kind.endswith("&"), index, about))
    return parameters


def _suffix(shape: Sequence[int]) -> str:
    if not shape:
        return "s"
    return "c" if _size(shape) < _FEW else ""


def _size(shape: Sequence[int]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _template_value(name: str, value: TypeOrNumber) -> tuple[str, str, str]:
    if isinstance(value, bool):
        return "bool", name, str(int(value))
    if isinstance(value, int):
        return "int", name, str(value)
    if isinstance(value, mx.Dtype):
        return "typename", name, metal_type(value)
    raise ValueError("[metal_kernel] Invalid template argument. Must be `mlx.core.Dtype`, `int` or `bool`.")
