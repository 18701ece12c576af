"""The outputs in the book are the outputs of its commands."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from book_outputs import OUTPUTS, difference  # noqa: E402

device = pytest.fixture(lambda: None)  # each command has a process of its own


@pytest.mark.parametrize("name", sorted(file.stem for file in OUTPUTS.glob("*.txt")))
def test_output(name):
    changes = difference(OUTPUTS / f"{name}.txt")
    assert not changes, f"\n{changes}\nto keep what is printed now: python scripts/book_outputs.py --update {name}"
