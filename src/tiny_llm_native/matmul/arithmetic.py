"""The number type in which products with packed weights are computed: float32, bfloat16 or int8.

`exact`, the default, is the faster of float32 and bfloat16. `fast` may be int8 as well, which rounds activations to 8
bits. The environment variable TINY_LLM_ARITHMETIC is `exact`, `fast` or a number type. Which number type is fastest
depends on the processor, and on the number of rows of x. So arithmetic_speeds.py measures the speeds once, and keeps
them next to the compiled kernels. Products in bfloat16 use AMX, the tiles of some processors of Intel, if the system
permits it. This module needs no MLX.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from metal_host.toolchain import whole

from ..compiler import BUILT, library_of, macros_of

__all__ = [
    "FEW",
    "KERNELS",
    "NAMES",
    "PACKED",
    "SOME",
    "VARIABLE",
    "Choice",
    "Speeds",
    "candidates",
    "choose",
    "chosen",
    "flags",
    "may_use_tiles",
    "remember",
    "remembered",
]

VARIABLE = "TINY_LLM_ARITHMETIC"
NAMES = ("float32", "bfloat16", "int8")
FEW, SOME = 8, 32  # rows of x, at most, as in packed.h
PACKED = Path(__file__).parent / "packed.cpp"
KERNELS = (PACKED, Path(__file__).parent / "block.cpp")  # the files that are compiled with `flags`
_ALLOWED = {"exact": NAMES[:2], "fast": NAMES} | {name: (name,) for name in NAMES}
_KEPT = PACKED.parent / BUILT / "arithmetic.json"
_MARGIN = 1.05  # a number type that is less than 5 % faster than an earlier type in NAMES is not worth its error


class Choice(NamedTuple):
    """The number types of products with few rows of x (FEW at most), with some (SOME at most) and with many."""

    few: str
    some: str
    many: str

    @classmethod
    def always(cls, name: str) -> Choice:
        """Return the choice of one number type for any number of rows."""
        return cls(name, name, name)


@dataclass(frozen=True)
class Speeds:
    """The measured speeds, keyed by number type.

    few: bytes of weights read per second, for one row of x. some and many: operations per second, for 16 and 64 rows of
    x. problems: why the kernels do not compile for a number type that the processor supports.
    """

    threads: int
    few: dict[str, float] = field(default_factory=dict)
    some: dict[str, float] = field(default_factory=dict)
    many: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def chosen() -> Choice:
    """Return the fastest number types that the environment allows. If the environment allows several types, measure
    their speeds once.

    Raises:
        ValueError: the environment names an unknown number type, or one that this processor lacks.
        KernelError: speeds have to be measured, but no kernels are built.
    """
    return _chosen(os.environ.get(VARIABLE, "exact"))


@cache
def _chosen(wanted: str) -> Choice:
    allowed = candidates(wanted)
    if len(allowed) == 1:
        return Choice.always(allowed[0])
    from .arithmetic_speeds import measure  # imported here because it needs MLX

    return choose(remembered() or measure(), wanted)


def choose(speeds: Speeds, wanted: str) -> Choice:
    """Return the fastest number types that `wanted` allows. wanted: `exact`, `fast` or a number type."""
    return Choice(*(_fastest(of_rows, _ALLOWED[wanted]) for of_rows in (speeds.few, speeds.some, speeds.many)))


def _fastest(speeds: dict[str, float], allowed: tuple[str, ...]) -> str:
    best, *others = (name for name in allowed if name in speeds)
    for name in others:
        best = name if speeds[name] > _MARGIN * speeds[best] else best
    return best


def candidates(wanted: str = "fast") -> tuple[str, ...]:
    """Return the number types that `wanted` allows, and for which this processor has instructions.

    Raises:
        ValueError: there is no such number type.
    """
    if wanted not in _ALLOWED:
        raise ValueError(f"{VARIABLE}: expected one of {', '.join(_ALLOWED)}, got {wanted!r}")
    found = tuple(name for name in _ALLOWED[wanted] if name == "float32" or name.upper() in _instructions())
    if not found:
        raise ValueError(f"{VARIABLE}: this processor has no instructions for {wanted}")
    return found


@cache
def _instructions() -> list[str]:
    """Return the names that instructions.h defines for this processor: some of BFLOAT16, TILES and INT8."""
    return re.findall(r"(?m)^#define TINY_LLM_HAS_(\w+)", macros_of(PACKED.with_name("instructions.h")))


def flags(choice: Choice | None = None) -> tuple[str, ...]:
    """Return the compiler's options for kernels that use the number types of `choice`; None means `chosen()`."""
    return _flags(choice or chosen())


@cache
def _flags(choice: Choice) -> tuple[str, ...]:
    if choice == Choice.always("float32"):
        return ()  # the default in packed.h
    names = {"bfloat16": "Bfloat16Tiles"} if may_use_tiles() else {}
    some, many = (names.get(name, name.capitalize()) for name in choice[1:])
    return f"-DTINY_LLM_FEW={choice.few.capitalize()}", f"-DTINY_LLM_SOME={some}", f"-DTINY_LLM_MANY={many}"


@cache
def may_use_tiles() -> bool:
    """Tell whether this process may use AMX. Linux permits it only to a process that asks, and some systems refuse.
    Source: Documentation/arch/x86/xstate.rst in the source of Linux."""
    if "TILES" not in _instructions():
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18
    return bool(sys.platform == "linux" and ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0)


def remembered() -> Speeds | None:
    """Return the speeds measured with this processor, compiler and kernels, and with the same permission to use AMX.
    Return None if nothing was measured."""
    try:
        kept = json.loads(_KEPT.read_text(encoding="utf-8"))
        is_current = (kept["kernels"], kept["tiles"]) == (library_of(PACKED).stem, may_use_tiles())
        return Speeds(**kept["speeds"]) if is_current else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(speeds: Speeds) -> None:
    """Keep speeds for other processes, if this process may write the file."""
    _chosen.cache_clear()
    with suppress(OSError), whole(_KEPT) as unfinished:
        kept = {"kernels": library_of(PACKED).stem, "tiles": may_use_tiles(), "speeds": asdict(speeds)}
        unfinished.write_text(json.dumps(kept, indent=1), encoding="utf-8")
