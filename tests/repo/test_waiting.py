"""Tests wait for events, not for the clock."""

import re
from pathlib import Path

import pytest
from waiting import until

ROOT = Path(__file__).resolve().parents[2]


def test_only_one_place_sleeps():
    """A test that sleeps is too slow on most machines and too fast on some. `sleep(0)` takes a turn, and no time."""
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "book").glob("week_*/*.py")]
    sleeping = [file.name for file in files if re.search(r"\bsleep\((?!0\))", file.read_text(encoding="utf-8"))]
    assert sorted(sleeping) == ["waiting.py"]


def test_a_condition_that_comes_true():
    looks = iter([False, None, True])
    until(lambda: next(looks))
    assert list(looks) == []


def test_a_condition_that_stays_false():
    with pytest.raises(AssertionError, match=r"did not come true in 0 seconds\. 3 are left"):
        until(lambda: False, 0, told=lambda: "3 are left")
