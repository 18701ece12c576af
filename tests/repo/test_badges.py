"""The project's address is one value, which badges and notebooks use. While it is empty, there are no badges."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

from address import READMES, badges, with_address, with_badges  # noqa: E402

from tiny_llm_course.base.places import address  # noqa: E402

URL = "https://github.com/Mia/tiny-llm"


device = pytest.fixture(lambda: None)  # nothing here computes on one


def test_files_have_the_address_of_pyproject() -> None:
    """If this fails: python scripts/address.py"""
    changed = [name for name, text in with_address(address()).items() if (ROOT / name).read_text("utf-8") != text]
    assert changed == []


@pytest.mark.parametrize("readme", READMES)
def test_badges_come_and_go(readme: str) -> None:
    before = (ROOT / readme).read_text(encoding="utf-8")
    without = with_badges(before, "")
    with_them = with_badges(without, badges(readme, URL))
    title, line, rest = with_them.split("\n", 3)[0], with_them.split("\n", 3)[2], with_them.split("\n", 3)[3]
    assert f"{title}\n{rest}" == without
    assert with_badges(with_them, badges(readme, URL)) == with_them
    assert with_badges(with_them, "") == without
    language, _, notebook = READMES[readme]
    assert f"(https://mia.github.io/tiny-llm/{language}/)" in line
    assert f"(https://colab.research.google.com/github/Mia/tiny-llm/blob/main/{notebook})" in line
    assert f"({URL}/actions/workflows/ci.yml)" in line
    assert "(https://codespaces.new/Mia/tiny-llm)" in line


def test_a_notebook_clones_from_the_address() -> None:
    for _, _, notebook in READMES.values():
        cells = json.loads(with_address(URL)[notebook])["cells"]
        (line,) = (line for cell in cells for line in cell["source"] if line.startswith("ADDRESS"))
        assert line.startswith(f'ADDRESS = "{URL}"')


def test_without_an_address_there_are_no_badges() -> None:
    assert [badges(readme, "") for readme in READMES] == ["", ""]
    assert "github.com" not in with_address("")["notebooks/week_1_day_1.ipynb"]
