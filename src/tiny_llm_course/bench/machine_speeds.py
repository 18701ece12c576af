"""Measures how fast this machine reads memory and multiplies."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from ..ui import CommandError, Messages

if TYPE_CHECKING:
    from tiny_llm_native.matmul.arithmetic import Speeds as ArithmeticSpeeds
    from tiny_llm_native.roofline import Speeds

__all__ = ["MEASURED", "limit_name", "measure_arithmetic", "measure_speeds"]

MEASURED = {  # a measurement's name in tiny_llm_native.roofline -> the key of the name that readers see
    "reading memory": "roofline_bandwidth",
    "multiplying float32": "roofline_float32",
    "multiplying bfloat16": "roofline_bfloat16",
    "multiplying int8": "roofline_int8",
}


def limit_name(what: str, words: Messages) -> str:
    """Return, in the reader's language, the name of a measurement that tiny_llm_native.roofline makes."""
    return words(MEASURED[what]) if what in MEASURED else what


def measure_speeds(progress: Callable[[str], None] = lambda what: None) -> Speeds:
    """Measure how fast this machine is, with tiny_llm_native.roofline.

    Raises:
        CommandError: no kernels are built.
    """
    try:
        speeds: Speeds = import_module("tiny_llm_native.roofline").measure(progress)
    except RuntimeError as error:
        raise CommandError("no_kernels", reason=error, exit_code=1) from None
    return speeds


def measure_arithmetic() -> ArithmeticSpeeds:
    """Measure how fast products with packed weights are in each arithmetic mode, so that kernels can use the fastest.

    Raises:
        CommandError: no kernels are built, or they do not compile.
    """
    try:
        speeds: ArithmeticSpeeds = import_module("tiny_llm_native.matmul.arithmetic_speeds").measure()
    except RuntimeError as error:
        raise CommandError("no_kernels", reason=error, exit_code=1) from None
    return speeds
