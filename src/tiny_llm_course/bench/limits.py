"""The limits of the machine, and the speed of a kernel as a share of these limits."""

from __future__ import annotations

from collections.abc import Callable

from .kernel_cases import Case, Limit, Rung
from .quiet import Quiet

__all__ = ["OVER", "SLOWER", "Figures", "MachineLimits", "is_over"]

SLOWER, OVER = "slower", "over"  # reasons to doubt a figure: the machine became slower; the figure exceeds the limit
LEAST_SHARE = 0.8  # a new measurement of a limit is in doubt below this share of the run's best measurement

Figures = dict[str, float]


class MachineLimits:
    """The machine's limits: the best measurements of this run, since other programs can only slow the machine down.

    measure: a function that returns bytes per second ("bandwidth"), and operations per second for each number type.
    doubt: the reason to doubt the last measurement, or None.
    """

    def __init__(self, measure: Callable[[], Figures], quiet: Quiet):
        self._measure, self._quiet = measure, quiet
        self.best: Figures = {}
        self.doubt: str | None = None

    def measure(self) -> None:
        """Measure the limits again. Call this method shortly before measuring a figure to compare with the limits."""
        measured, self.doubt = self._quiet.measure(self._measure, _larger, self._slower)
        self.best = _larger(self.best, measured)

    def operations(self, limit: Limit) -> float:
        """Return the operations per second of float32 if it was measured, otherwise of the fastest number type. limit:
        `float32` or `fastest`."""
        fastest = max(rate for name, rate in self.best.items() if name != "bandwidth")
        return self.best.get(limit, fastest)

    def share(self, case: Case, rung: Rung, seconds: float) -> float | None:
        """Return a rung's speed as a share of its limit (1: as fast as the limit). Return None if the rung has no
        limit."""
        if rung.limit is None:
            return None
        if rung.limit == "bandwidth":
            return case.bytes / self.best["bandwidth"] / seconds
        return case.operations / self.operations(rung.limit) / seconds

    def passed(self, case: Case, rung: Rung, seconds: float) -> str | None:
        """Return OVER if a rung is faster than its limit, even after the limit is measured again. Otherwise return
        None."""
        if is_over(self.share(case, rung, seconds)):
            self.best = _larger(self.best, self._measure())
        return OVER if is_over(self.share(case, rung, seconds)) else None

    def _slower(self, measured: Figures) -> str | None:
        return SLOWER if any(rate < LEAST_SHARE * self.best.get(name, 0) for name, rate in measured.items()) else None


def is_over(share: float | None) -> bool:
    """Tell whether a share of the limit is shown as more than 100 %."""
    return share is not None and round(100 * share) > 100


def _larger(one: Figures, other: Figures) -> Figures:
    return {name: max(rate, one.get(name, 0)) for name, rate in other.items()}
