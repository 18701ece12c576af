"""scripts/newest.py: the tests that failed with newer packages, and the newer versions."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from gate_table import all_gates  # noqa: E402
from newest import LEFT_OUT, Broken, _gates, changes, failures, summary  # noqa: E402

REPORT = """<?xml version="1.0"?>
<testsuites><testsuite name="pytest" tests="3">
<testcase classname="tests.repo.test_kernels" name="test_a[1-x]" time="1"/>
<testcase classname="tests.repo.test_kernels" name="test_b" time="1"><failure message="AssertionError: no &lt;b&gt;">
long</failure></testcase>
<testcase classname="tests.metal_host.test_metal_signature" name="test_c" time="1"><error message="ImportError: mlx"/>
</testcase>
</testsuite></testsuites>
"""
KERNELS = Broken("tests/repo/test_kernels.py::test_b", "AssertionError: no <b>", "kernels")
METAL = Broken("tests/metal_host/test_metal_signature.py::test_c", "ImportError: mlx", "metal")
LOCKED = {"rich": {"13.0"}, "mlx": {"0.32.4"}, "numpy": {"2.2.6", "2.4.6"}, "furo": {"1"}, "tomli": {"2"}}


device = pytest.fixture(lambda: None)  # nothing here computes on one


def test_failures_of_a_report() -> None:
    assert failures(REPORT) == ([KERNELS, METAL], 3)


def test_versions_that_changed() -> None:
    now = {"rich": "14.1", "mlx": "0.33.0", "numpy": "2.4.6", "furo": "2", "other": "9"}
    assert changes(LOCKED, now) == [("mlx", "0.32.4", "0.33.0"), ("furo", "1", "2"), ("rich", "13.0", "14.1")]
    assert changes(LOCKED, {"numpy": "2.5.0"}) == [("numpy", "2.2.6 or 2.4.6", "2.5.0")]


def test_a_summary_names_what_broke_and_the_versions() -> None:
    text = summary([KERNELS, METAL], 3, [("mlx", "0.32.4", "0.33.0")], is_beyond=True)
    assert text.startswith("# The newest MLX, beyond the range: 2 of 3 tests fail\n")
    assert "- `tests/repo/test_kernels.py::test_b` (gate `kernels`)\n      \n      AssertionError: no <b>\n" in text
    assert text.endswith("| mlx | 0.32.4 | 0.33.0 |\n")
    assert "says nothing" not in text


def test_a_summary_of_a_run_in_which_nothing_broke() -> None:
    text = summary([], 5123, [], is_beyond=False)
    assert text.startswith("# The newest packages in range: all 5,123 tests pass\n")
    assert text.endswith("All packages have their locked versions.\n")
    assert "no MLX that is newer than the locked one" in summary([], 9, [("rich", "13.0", "14.1")], is_beyond=True)


def test_a_summary_of_a_step_that_failed() -> None:
    text = summary([Broken("build the MLX extension", "error: no matching function")], 0, [], is_beyond=True)
    assert text.startswith("# The newest MLX, beyond the range: “build the MLX extension” failed\n")
    assert "      error: no matching function\n" in text


def test_gates_that_depend_on_packages_are_run() -> None:
    named = set(_gates())
    assert {"types", "kernels", "server", "models", "metal", "reference", "book"} <= named
    assert named.isdisjoint(LEFT_OUT)
    assert named <= {gate.name for gate in all_gates()}


def test_the_weekly_job_shows_the_summary() -> None:
    job = (ROOT / ".github/workflows/newest.yml").read_text(encoding="utf-8")
    assert re.search(r"cron: .*\* 1\"", job), "once a week"
    assert "python scripts/newest.py ${{ matrix.packages == 'beyond the range' && '--beyond' || '' }}" in job
    assert "continue-on-error: ${{ matrix.packages == 'beyond the range' }}" in job
    assert 'if: always()\n        run: cat build/newest/summary.md >> "$GITHUB_STEP_SUMMARY"' in job
