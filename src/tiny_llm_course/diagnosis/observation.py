"""Keeps what reaches a test's comparisons, so that two runs of a test can be compared."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["ChangedArgumentError", "Observation", "observe", "record", "recording"]


class ChangedArgumentError(AssertionError):
    """The code under test wrote into an array that it was given."""


@dataclass(eq=False)
class Observation:
    """A run of a test: what was compared, and how the run ended."""

    values: list[tuple[np.ndarray, str, float]] = field(default_factory=list)  # float64, dtype, tolerance
    error: BaseException | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None

    def equals(self, other: Observation) -> bool:
        """Tell whether both runs compared the same values, within the tests' tolerances, and ended in the same way."""
        if len(self.values) != len(other.values) or self._ending != other._ending:
            return False
        return all(_equal(a, b) for a, b in zip(self.values, other.values, strict=True))

    @property
    def _ending(self) -> tuple[str, str] | None:
        """Return how the run ended. A mismatch of numbers counts by its kind only, since `values` has the numbers and
        their tolerance."""
        if self.error is None:
            return None
        kind, text = type(self.error).__name__, getattr(self.error, "general", str(self.error))
        if kind == "RemoteError":  # of a submission: which error that was there
            kind, _, text = text.partition(": ")
        return kind, "" if " values differ (" in text else _VARYING.sub("...", _in_general(text))


def _in_general(text: str) -> str:
    """Take lines and threads out of metal_host's report of a kernel: the rest does not depend on how the kernel is
    written."""
    if not text.startswith("kernel '"):
        return text
    return re.sub(r"\n.*\.metal:\d+:.*|\n  by thread .*|(\n |,) such as thread .*", "", text)


_VARYING = re.compile(r"\b(tiny_llm_ref|tiny_llm|mutant_\w+)\b|\b0x[0-9a-f]+")  # package and address of an object
_active = threading.local()  # its `observations`: tests may be replayed in several threads


def record(values: np.ndarray, dtype: str, tolerance: float) -> None:
    """Note a result of the code under test. The tests' comparisons call this."""
    for observation in _observations():
        observation.values.append((values, dtype, tolerance))


@contextmanager
def recording() -> Iterator[Observation]:
    """Keep what is compared in the block. How the block ends is the caller's to note."""
    observation = Observation()
    _observations().append(observation)
    try:
        yield observation
    finally:
        _observations().remove(observation)


def _observations() -> list[Observation]:
    found: list[Observation] = _active.__dict__.setdefault("observations", [])
    return found


def observe(function: Callable[..., Any], arguments: dict[str, Any]) -> Observation:
    """Run a test. What it raises ends up in the observation, Ctrl-C and the like excepted."""
    with recording() as observation:
        try:
            function(**arguments)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # pytest's failures are no Exceptions
            observation.error = error
    return observation


def _equal(a: tuple[np.ndarray, str, float], b: tuple[np.ndarray, str, float]) -> bool:
    (x, x_dtype, tolerance), (y, y_dtype, _) = a, b
    if x.shape != y.shape or x_dtype != y_dtype:
        return False
    tolerance = max(tolerance, 1e-6)
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True))
