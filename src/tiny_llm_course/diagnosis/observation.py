"""Records the values that a test compares, so that two runs of the test can be compared with each other."""

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
    """The failure of a test because the code under test changed an argument that the test had passed."""


@dataclass(eq=False)
class Observation:
    """A run of a test: the values that were compared, and the error that ended the run, if any."""

    values: list[tuple[np.ndarray, str, float]] = field(default_factory=list)  # value as float64, dtype, tolerance
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
        """Return the kind and the text of the error. Return None if the run passed. If the error is about values that
        differ, the text is "", since `values` has these values and their tolerance."""
        if self.error is None:
            return None
        kind, text = type(self.error).__name__, getattr(self.error, "general", str(self.error))
        if kind == "RemoteError":  # an error of a submission's process: its text begins with the error's kind
            kind, _, text = text.partition(": ")
        return kind, "" if " values differ (" in text else _VARYING.sub("...", _in_general(text))


def _in_general(text: str) -> str:
    """Remove the parts of metal_host's report that depend on how the kernel is written: source lines and thread
    positions."""
    if not text.startswith("kernel '"):
        return text
    return re.sub(r"\n.*\.metal:\d+:.*|\n  by thread .*|(\n |,) such as thread .*", "", text)


_VARYING = re.compile(r"\b(tiny_llm_ref|tiny_llm|mutant_\w+)\b|\b0x[0-9a-f]+")  # packages; addresses of objects
_active = threading.local()  # has `observations` for each thread, since tests may be replayed in several threads


def record(values: np.ndarray, dtype: str, tolerance: float) -> None:
    """Record a result of the code under test. The comparisons in tests call this function."""
    for observation in _observations():
        observation.values.append((values, dtype, tolerance))


@contextmanager
def recording() -> Iterator[Observation]:
    """Record the values that are compared in the block. The caller has to set `error` if an error ends the block."""
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
    """Run a test, and return an observation that contains the error that ended the test, if any.

    KeyboardInterrupt and SystemExit are raised again, so they end the whole run of tests.
    """
    with recording() as observation:
        try:
            function(**arguments)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # pytest's failures are not a subclass of Exception
            observation.error = error
    return observation


def _equal(a: tuple[np.ndarray, str, float], b: tuple[np.ndarray, str, float]) -> bool:
    (x, x_dtype, tolerance), (y, y_dtype, _) = a, b
    if x.shape != y.shape or x_dtype != y_dtype:
        return False
    tolerance = max(tolerance, 1e-6)
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True))
