"""The pytest plugin of `./course check` (`-p gate_report`): orders tests by gate, and reports each gate's result.

A gate's seconds are the sum over its tests. On two workers, the gate takes only about half that time.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from time import monotonic
from typing import Any

import pytest
from gate_table import ROOT, Gate, gate_of, select, unit_of
from passed_gates import FILE, digest, has_passed, keep, sample
from xdist.scheduler import LoadScopeScheduling

TIMES = ROOT / "build" / "check" / "times.json"
SLOWEST = 3


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(), "gates")


class GateScheduling(LoadScopeScheduling):
    """A scheduler that gives each worker one unit of tests at a time."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GateScheduling:
    return GateScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out most units of the gates that have passed with the same inputs, and order the other tests."""
    _leave_out(config, items)
    _order(items)


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    for gate in _known():
        units = {unit_of(item.nodeid) for item in items if gate_of(item.nodeid) == gate}
        left = units - sample(gate, units, os.environ["TINY_LLM_CHECK_SEED"]) if units else set()
        config.hook.pytest_deselected(items=[item for item in items if unit_of(item.nodeid) in left])
        items[:] = [item for item in items if unit_of(item.nodeid) not in left]


def _order(items: list[pytest.Item]) -> None:
    """Order tests by gate. Within a gate, units of changed days come first, and slower units before faster ones."""
    chosen = {name: place for place, name in enumerate(os.environ["TINY_LLM_CHECK_GATES"].split())}
    days = set(re.findall(r"week_(\d+)[_/]d(?:ay_)?(\d+)", os.environ["TINY_LLM_CHECK_CHANGED"]))
    names = [part for week, day in days for part in (f"w{week}d{day}", f"week_{week}_day_{day}")]
    seconds = _read_times()
    of_unit: Counter[str] = Counter()
    for item in items:
        of_unit[unit_of(item.nodeid)] += seconds.get(item.nodeid, 0)

    def rank(item: pytest.Item) -> tuple[int, bool, float, str]:
        gate, unit = gate_of(item.nodeid), unit_of(item.nodeid)
        is_of_a_changed_day = any(name in unit for name in names)
        return chosen[gate.name] if gate else len(chosen), not is_of_a_changed_day, -of_unit[unit], unit

    items.sort(key=rank)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Print no character for a test that passes, because the line of each gate shows the progress."""
    return ("passed", "", "") if report.passed and report.when == "call" else None


def _chosen() -> list[Gate]:
    return select(os.environ["TINY_LLM_CHECK_GATES"].split(), [])


def _known() -> list[Gate]:
    """Return the chosen gates that have passed with their current inputs. With `--all`, return none."""
    return [] if os.environ["TINY_LLM_CHECK_ALL"] == "1" else [gate for gate in _chosen() if has_passed(gate)]


class _Report:
    """The results of the gates, in the process to which the workers report."""

    def __init__(self) -> None:
        self._digests = {gate: digest(gate) for gate in _chosen() if gate.remember}  # before a test changes a file
        self._known = set(_known())
        self._skipped: set[Gate | None] = set()
        self._start = monotonic()
        self._before = _read_times()
        self._seconds: Counter[str] = Counter()  # keyed by test
        self._failed: set[Gate | None] = set()
        self._left: Counter[Gate | None] = Counter()  # tests that have not ended
        self._total = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if not self._left:  # each worker collects the same tests
            self._left = Counter(map(gate_of, ids))
            self._total = len(ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:  # for example, because of an error in the file's imports
            file = report.nodeid.partition("::")[0]
            self._failed |= {gate for gate in _chosen() if file in gate.files()}
            _say(f"FAILED {file}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test, gate = report.nodeid, gate_of(report.nodeid)
        self._seconds[test] += report.duration
        if report.failed:
            self._failed.add(gate)
            _say(f"FAILED {test}")
        if report.skipped:
            self._skipped.add(gate)
        if report.when == "teardown":
            self._left[gate] -= 1
            if gate and self._left[gate] == 0:
                done = 100 * (self._total - sum(self._left.values())) // self._total
                _say(f"[{monotonic() - self._start:4.0f} s, {done:3d} %] {self._row(gate)}")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("gates")
        for gate in _chosen():
            terminalreporter.line(self._row(gate))
        terminalreporter.line(f"{sum(self._seconds.values()):.0f} s of tests in {monotonic() - self._start:.0f} s")
        terminalreporter.section(f"the {SLOWEST} slowest tests")
        for test, seconds in self._seconds.most_common(SLOWEST):
            terminalreporter.line(f"{seconds:7.1f} s  {test}")
        if failed := [gate.name for gate in self._failed if gate]:
            terminalreporter.line(f"failed: {', '.join(failed)}", red=True)
        if os.environ["TINY_LLM_CHECK_WHOLE"] == "1" and keep(self._passed()):
            terminalreporter.line(f"commit {FILE.relative_to(ROOT)}, which records the gates that have passed")
        TIMES.parent.mkdir(parents=True, exist_ok=True)
        kept = self._before | {test: round(seconds, 2) for test, seconds in self._seconds.items()}
        TIMES.write_text(json.dumps(kept, indent=0, sort_keys=True), encoding="utf-8")

    def _passed(self) -> dict[Gate, str]:
        """Return the digest of each gate that is to be remembered and whose tests have all run and passed."""
        other = self._known | self._failed | self._skipped
        ended = {gate for gate, left in self._left.items() if left == 0}
        return {gate: found for gate, found in self._digests.items() if gate in ended - other}

    def _row(self, gate: Gate) -> str:
        seconds, before = (
            sum(of_test for test, of_test in times.items() if gate_of(test) == gate)
            for times in (self._seconds, self._before)
        )
        row = f"{gate.name:<10} {self._state(gate):<8} {seconds:6.1f} s   budget {gate.budget:4g} s"
        row += f"   last time {before:6.1f} s" if before else ""
        return row + ("   over its budget" if seconds > gate.budget else "")

    def _state(self, gate: Gate) -> str:
        if gate in self._failed:
            return "FAILED"
        if self._left[gate]:
            return "not finished"
        if gate in self._known:
            return "known"
        return "ok" if gate in self._left else "no tests"


def _say(line: str) -> None:
    print(f"\n{line}" if line.startswith("FAILED") else line, flush=True)


def _read_times() -> dict[str, float]:
    """Return the seconds that each test took in its last run, keyed by test."""
    try:
        return dict(json.loads(TIMES.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
