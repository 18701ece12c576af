"""Compares the arguments that an op passes with the arguments that its kernel describes."""

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import mlx.core as mx

__all__ = ["Arguments", "Output"]

Output: TypeAlias = tuple[Sequence[int], mx.Dtype]  # shape and dtype
_Form: TypeAlias = tuple[mx.Dtype, int]  # dtype and number of axes

_DTYPES = {"f": (mx.float32, mx.bfloat16, mx.float16), "i": (mx.int32,), "u": (mx.uint32,)}


class Arguments(NamedTuple):
    """The arrays and numbers that a kernel takes. An array is described by a letter for the dtypes that it may have,
    and by its number of axes, where 0 allows any number of axes."""

    inputs: list[tuple[str, int]]
    outputs: list[tuple[str, int]]
    numbers: int

    @classmethod
    def parse(cls, description: str) -> "Arguments":
        """Read a description such as "f2u2F2nn": two inputs, one output and two numbers."""
        inputs, outputs = (re.findall(rf"([{kinds}])(\d)", description) for kinds in ("fiu", "FIU"))
        return cls(_forms(inputs), _forms(outputs), description.count("n"))

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return how many inputs, outputs and numbers the kernel takes."""
        return len(self.inputs), len(self.outputs), self.numbers

    def check(
        self,
        kernel: str,
        inputs: Sequence[mx.array],
        outputs: Sequence[Output],
        numbers: Sequence[float],
        changed: Sequence[mx.array],
    ) -> None:
        """Raise a ValueError, which names the kernel, if the kernel does not take these arguments."""
        given = [(x.dtype, x.ndim) for x in inputs]
        made = [*((x.dtype, x.ndim) for x in changed), *((dtype, len(shape)) for shape, dtype in outputs)]
        if not (_fit(given, self.inputs) and _fit(made, self.outputs) and len(numbers) == self.numbers):
            expected = _told([_kind(*form) for form in self.inputs], [_kind(*form) for form in self.outputs])
            got = _told([_array(*form) for form in given], [_array(*form) for form in made])
            raise ValueError(
                f"{kernel}: expected {expected} with {self.numbers} numbers, got {got} with {len(numbers)} numbers"
            )


def _forms(found: list[tuple[str, str]]) -> list[tuple[str, int]]:
    return [(kind.lower(), int(axes)) for kind, axes in found]


def _fit(given: list[_Form], expected: list[tuple[str, int]]) -> bool:
    return len(given) == len(expected) and all(
        dtype in _DTYPES[kind] and wanted in (0, axes)
        for (dtype, axes), (kind, wanted) in zip(given, expected, strict=True)
    )


def _kind(kind: str, axes: int) -> str:
    name = "float" if kind == "f" else _name(_DTYPES[kind][0])
    return f"{axes}-D {name}" if axes else name


def _array(dtype: mx.Dtype, axes: int) -> str:
    return f"{axes}-D {_name(dtype)}"


def _name(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")


def _told(inputs: list[str], outputs: list[str]) -> str:
    return f"({', '.join(inputs)}) -> ({', '.join(outputs)})"
