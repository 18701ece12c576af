"""What the book says that its commands print is what they print."""

import difflib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from book_outputs import OUTPUTS, printed_by  # noqa: E402


@pytest.fixture
def device():
    """Each command has a process of its own."""


@pytest.mark.parametrize("name", sorted(file.stem for file in OUTPUTS.glob("*.txt")))
def test_output(name):
    kept = (OUTPUTS / f"{name}.txt").read_text(encoding="utf-8")
    command = kept.partition("\n")[0]
    printed = f"{command}\n{printed_by(command)}"
    lines = (text.splitlines() for text in (kept, printed))
    difference = "\n".join(difflib.unified_diff(*lines, f"book/outputs/{name}.txt", "printed now", lineterm=""))
    assert not difference, (
        f"\n{difference}\nto keep what is printed now: python scripts/book_outputs.py --update {name}"
    )
